//! A broker that fails as told.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use posthaste_core::publisher::{Delivery, Place};
use posthaste_core::{Batch, Message, MessageId, Outcome, PublishError, Publisher, Report};
use tokio::sync::watch;

use super::rule::{Fault, Rule};

/// Stands in front of another publisher and lets messages go wrong by script. Clones share the script.
///
/// It keeps a publisher's contract: after a message that went wrong the rest of its lane is not attempted, and other
/// lanes go on.
///
/// ```
/// use posthaste_testing::{Fault, FaultyPublisher, RecordingPublisher, Rule};
///
/// let broker = FaultyPublisher::new(RecordingPublisher::new());
/// broker.fail_next(3);
/// broker.inject(Rule::new(Fault::LostAcknowledgement).when(|m| m.topic == "payments").times(1));
/// ```
#[derive(Debug)]
pub struct FaultyPublisher<P> {
    inner: Arc<P>,
    script: Arc<Script>,
}

#[derive(Debug)]
struct Script {
    rules: Mutex<Vec<Rule>>,
    down: Mutex<Option<Fault>>,
    hanging: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl<P> Clone for FaultyPublisher<P> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            script: Arc::clone(&self.script),
        }
    }
}

impl<P: Publisher> FaultyPublisher<P> {
    /// Nothing goes wrong until a fault is injected.
    pub fn new(inner: P) -> Self {
        Self {
            inner: Arc::new(inner),
            script: Arc::new(Script {
                rules: Mutex::default(),
                down: Mutex::default(),
                hanging: watch::Sender::new(false),
                waiting: watch::Sender::new(0),
            }),
        }
    }

    /// The publisher behind it.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Adds a rule. Of several rules that meet a message the oldest applies.
    pub fn inject(&self, rule: Rule) {
        self.rules().push(rule);
    }

    /// The next `count` messages fail with a transient error.
    pub fn fail_next(&self, count: u32) {
        self.inject(Rule::new(Fault::transient()).times(count));
    }

    /// Messages fail with a transient error while `condition` holds for them.
    pub fn fail_while(&self, condition: impl Fn(&Message) -> bool + Send + Sync + 'static) {
        self.inject(Rule::new(Fault::transient()).when(condition));
    }

    /// These messages fail with a permanent error, always.
    pub fn refuse(&self, ids: impl IntoIterator<Item = MessageId>) {
        self.inject(Rule::new(Fault::permanent()).on(ids));
    }

    /// The next `count` messages are delivered but reported as failed.
    pub fn lose_acknowledgements(&self, count: u32) {
        self.inject(Rule::new(Fault::LostAcknowledgement).times(count));
    }

    /// The next `count` messages are neither delivered nor reported.
    pub fn fall_silent(&self, count: u32) {
        self.inject(Rule::new(Fault::Silence).times(count));
    }

    /// The next message makes the publisher panic.
    pub fn panic_next(&self) {
        self.inject(Rule::new(Fault::Panic).times(1));
    }

    /// Everything fails with a transient error until [`FaultyPublisher::up`].
    pub fn down(&self) {
        *self.everywhere() = Some(Fault::transient());
    }

    /// Everything fails with a transport error until [`FaultyPublisher::up`]; the relay's circuit opens after a few.
    pub fn vanish(&self) {
        *self.everywhere() = Some(Fault::transport());
    }

    /// Ends [`FaultyPublisher::down`] and [`FaultyPublisher::vanish`].
    pub fn up(&self) {
        *self.everywhere() = None;
    }

    /// Every publication hangs until [`FaultyPublisher::release`].
    pub fn hang(&self) {
        self.script.hanging.send_replace(true);
    }

    /// Lets hanging publications go on.
    pub fn release(&self) {
        self.script.hanging.send_replace(false);
    }

    /// Waits until `count` publications hang.
    pub async fn wait_until_hanging(&self, count: usize) {
        let mut waiting = self.script.waiting.subscribe();
        // An error would mean that the sender is gone, and `self` holds it.
        let _ = waiting.wait_for(|waiting| *waiting >= count).await;
    }

    /// Forgets all rules, comes up and releases: nothing goes wrong any more.
    pub fn heal(&self) {
        self.rules().clear();
        self.up();
        self.release();
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.script.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn everywhere(&self) -> MutexGuard<'_, Option<Fault>> {
        self.script.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault_for(&self, message: &Message) -> Option<Fault> {
        let everywhere = self.everywhere().clone();
        everywhere.or_else(|| self.rules().iter_mut().find_map(|rule| rule.apply(message)))
    }

    async fn wait_while_hanging(&self) {
        let mut hanging = self.script.hanging.subscribe();
        if *hanging.borrow() {
            let _leave = Waiting::enter(&self.script.waiting);
            let _ = hanging.wait_for(|hanging| !hanging).await;
        }
    }
}

/// Counts a publication that hangs, also when it is given up.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn enter(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The topic and key in which order holds.
type Lane = (String, String);

fn lane(delivery: &Delivery) -> Option<Lane> {
    let (topic, key) = delivery.message.lane()?;
    Some((topic.to_owned(), key.to_owned()))
}

/// A batch, sorted by what the script has for it.
#[derive(Default)]
struct Sorted {
    healthy: Vec<Delivery>,
    lost: HashSet<Place>,
    faulty: Vec<(Delivery, Fault)>,
    held_back: Vec<Place>,
}

#[async_trait]
impl<P: Publisher> Publisher for FaultyPublisher<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        self.wait_while_hanging().await;
        let mut sorted = Sorted::default();
        let mut stopped = HashSet::new();
        for delivery in &batch.deliveries {
            let place = delivery.place;
            let lane = lane(delivery);
            if lane.as_ref().is_some_and(|lane| stopped.contains(lane)) || !batch.may_send(place) {
                stopped.extend(lane);
                sorted.held_back.push(place);
                continue;
            }
            match self.fault_for(&delivery.message) {
                None => sorted.healthy.push(delivery.clone()),
                Some(Fault::LostAcknowledgement) => {
                    stopped.extend(lane);
                    sorted.lost.insert(place);
                    sorted.healthy.push(delivery.clone());
                }
                Some(fault) => {
                    stopped.extend(lane);
                    sorted.faulty.push((delivery.clone(), fault));
                }
            }
        }
        let failed = self.publish_healthy(batch, sorted.healthy, sorted.lost, &report).await;
        for place in sorted.held_back {
            report.outcome(place, Outcome::NotAttempted);
        }
        let mut panics = false;
        for (delivery, fault) in sorted.faulty {
            let place = delivery.place;
            if lane(&delivery).is_some_and(|lane| failed.contains(&lane)) {
                report.outcome(place, Outcome::NotAttempted);
                continue;
            }
            match fault {
                Fault::Error(error) => report.failed(place, error),
                Fault::Panic => panics = true,
                Fault::Silence | Fault::LostAcknowledgement => {}
            }
        }
        assert!(!panics, "the publisher panics, as scripted");
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

impl<P: Publisher> FaultyPublisher<P> {
    /// Passes on what nothing is wrong with; returns the lanes in which the inner publisher failed.
    async fn publish_healthy(
        &self,
        mut batch: Batch,
        deliveries: Vec<Delivery>,
        lost: HashSet<Place>,
        report: &Report,
    ) -> HashSet<Lane> {
        if deliveries.is_empty() {
            return HashSet::new();
        }
        let lanes: std::collections::HashMap<_, _> = deliveries
            .iter()
            .filter_map(|delivery| Some((delivery.place, lane(delivery)?)))
            .collect();
        batch.deliveries = deliveries;
        let failed = Arc::new(Mutex::new(HashSet::new()));
        let (failures, outer) = (Arc::clone(&failed), report.clone());
        let report = Report::new(move |place, outcome| {
            if !outcome.is_delivered() {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.extend(lanes.get(&place).cloned());
            }
            let outcome = match outcome {
                Outcome::DELIVERED if lost.contains(&place) => {
                    Outcome::Failed(PublishError::transient("the acknowledgement was lost, as scripted"))
                }
                outcome => outcome,
            };
            outer.outcome(place, outcome);
        });
        self.inner.publish(batch, report).await;
        let failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone()
    }
}
