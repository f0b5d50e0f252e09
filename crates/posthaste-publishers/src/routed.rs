//! Several publishers as one: each message goes to one of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{join, join_all};
use posthaste_core::Message;
use posthaste_core::publisher::{
    Batch, Capabilities, Delivery, ErrorScope, Outcome, Place, PublishError, Publisher, Report,
};
use posthaste_core::readable::Readable;
use tokio::time::timeout;

use crate::each::caught;
use crate::options::InvalidOption;
use crate::routing::Route;

/// Which messages go to which of several publishers.
#[derive(Clone, Debug)]
pub struct Routes(Vec<(Route, usize)>);

impl Routes {
    /// These rules, for publishers with these names.
    ///
    /// # Errors
    ///
    /// If a rule names no publisher, if one is never reached, or if a message might fit none.
    pub fn new(routes: Vec<Route>, names: &[String]) -> Result<Self, InvalidOption> {
        let invalid = |field: String, value: &str, remedy: String| Err(InvalidOption::new(field, value, remedy));
        let known = names.join(", ");
        if routes.is_empty() {
            let remedy = format!(
                "is missing; say which messages go to which of {known}, and last where all others go: [[routes]] with `to` only"
            );
            return invalid("routes".to_owned(), "[]", remedy);
        }
        if names.is_empty() {
            let remedy =
                "there is no publisher that they could name; write [[publishers]] above each, with name and kind";
            return invalid("routes".to_owned(), "[…]", remedy.to_owned());
        }
        let last = routes.len() - 1;
        let mut targets: Vec<(Route, usize)> = Vec::with_capacity(routes.len());
        for (place, route) in routes.into_iter().enumerate() {
            let Some(target) = names.iter().position(|name| *name == route.to) else {
                let remedy = format!("no publisher has this name; there are {known}");
                return invalid(format!("routes.{place}.to"), &format!("{:?}", route.to), remedy);
            };
            if let Some(wider) = targets.iter().position(|(earlier, _)| earlier.covers(&route)) {
                let remedy = format!(
                    "is never reached: routes.{wider} is for all its messages; put it before that one, or leave one of them out"
                );
                return invalid(format!("routes.{place}.to"), &format!("{:?}", route.to), remedy);
            }
            match (route.is_unconditional(), place == last) {
                (true, false) => {
                    let remedy =
                        "is for all messages, so those that follow it are never reached; put it last".to_owned();
                    return invalid(format!("routes.{place}.to"), &format!("{:?}", route.to), remedy);
                }
                (false, true) => {
                    let remedy =
                        "is the last and has conditions, so some messages would go nowhere; add one with `to` only";
                    return invalid(
                        format!("routes.{place}.to"),
                        &format!("{:?}", route.to),
                        remedy.to_owned(),
                    );
                }
                _ => targets.push((route, target)),
            }
        }
        match (0..names.len()).find(|place| targets.iter().all(|(_, target)| target != place)) {
            Some(unused) => invalid(
                format!("publishers.{unused}.name"),
                &format!("{:?}", names[unused]),
                "no route sends anything to it; add one, or leave the publisher out".to_owned(),
            ),
            None => Ok(Self(targets)),
        }
    }

    /// The place of the publisher that a message goes to.
    fn target(&self, message: &Message) -> usize {
        let found = self.0.iter().find(|(route, _)| route.matches(message));
        // The last rule is for all messages.
        found.or(self.0.last()).map_or(0, |(_, target)| *target)
    }
}

/// Hands each message to one of several publishers.
///
/// Each of them is a destination of its own to the relay: one that is unavailable, or falls silent, opens its own circuit
/// breaker and holds back its own messages. While all of them are unavailable the relay claims nothing, and tries one
/// message at a time until one gets through. Where messages of one lane go to several publishers, they still go out one after
/// the other.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use posthaste_publishers::{LogPublisher, Route, Routed, Stdout};
///
/// let routed = Routed::new(
///     vec![
///         ("audit".to_owned(), Arc::new(LogPublisher::default())),
///         ("all".to_owned(), Arc::new(Stdout::new())),
///     ],
///     vec![Route::to("audit").event_type("*.deleted"), Route::to("all")],
/// )
/// .unwrap();
/// ```
#[derive(Clone)]
pub struct Routed {
    routes: Routes,
    publishers: Vec<(Arc<str>, Arc<dyn Publisher>)>,
}

impl Routed {
    /// These publishers behind these rules.
    ///
    /// # Errors
    ///
    /// See [`Routes::new`].
    pub fn new(publishers: Vec<(String, Arc<dyn Publisher>)>, routes: Vec<Route>) -> Result<Self, InvalidOption> {
        let names: Vec<String> = publishers.iter().map(|(name, _)| name.clone()).collect();
        Ok(Self {
            routes: Routes::new(routes, &names)?,
            publishers: publishers.into_iter().map(|(name, to)| (name.into(), to)).collect(),
        })
    }

    /// Lanes that go to several publishers, apart from all else.
    fn divide(&self, deliveries: &[Delivery]) -> (Vec<Delivery>, Vec<Delivery>) {
        let mut targets: HashMap<(&str, &str), usize> = HashMap::new();
        let mut mixed = HashSet::new();
        for message in deliveries.iter().map(|delivery| &delivery.message) {
            let target = self.routes.target(message);
            if let Some(lane) = message.lane()
                && *targets.entry(lane).or_insert(target) != target
            {
                mixed.insert(lane);
            }
        }
        let is_mixed = |delivery: &&Delivery| delivery.message.lane().is_some_and(|lane| mixed.contains(&lane));
        let (mixed, straight): (Vec<_>, Vec<_>) = deliveries.iter().partition(is_mixed);
        (
            straight.into_iter().cloned().collect(),
            mixed.into_iter().cloned().collect(),
        )
    }

    /// Publishes lanes that go to several publishers: of each as many as go to the same one, and what follows once these
    /// are delivered.
    async fn publish_mixed(&self, mut deliveries: Vec<Delivery>, batch: &Batch, report: &Report) {
        while !deliveries.is_empty() {
            let (next, later) = self.next_of_each_lane(deliveries);
            let delivered: Arc<Mutex<HashSet<Place>>> = Arc::default();
            let noted = {
                let (delivered, report) = (Arc::clone(&delivered), report.clone());
                Report::new(move |place, outcome: Outcome| {
                    if outcome.is_delivered() {
                        delivered.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
                    }
                    report.outcome(place, outcome);
                })
            };
            self.publish_to_each(next.clone(), batch, &noted).await;
            let delivered = delivered.lock().unwrap_or_else(PoisonError::into_inner);
            let failed = next.iter().filter(|delivery| !delivered.contains(&delivery.place));
            let stopped: HashSet<_> = failed.filter_map(|delivery| delivery.message.lane()).collect();
            let is_stopped = |delivery: &Delivery| delivery.message.lane().is_some_and(|lane| stopped.contains(&lane));
            let (in_vain, go_on): (Vec<_>, Vec<_>) = later.into_iter().partition(is_stopped);
            for delivery in in_vain {
                report.outcome(delivery.place, Outcome::NotAttempted);
            }
            deliveries = go_on;
        }
    }

    /// What comes first of each lane and goes to one publisher, and all that comes later.
    fn next_of_each_lane(&self, deliveries: Vec<Delivery>) -> (Vec<Delivery>, Vec<Delivery>) {
        let mut lanes: HashMap<(String, String), Option<usize>> = HashMap::new();
        deliveries.into_iter().partition(|delivery| {
            let target = Some(self.routes.target(&delivery.message));
            let Some((topic, key)) = delivery.message.lane() else {
                return true;
            };
            let of_lane = lanes.entry((topic.to_owned(), key.to_owned())).or_insert(target);
            if *of_lane != target {
                *of_lane = None;
            }
            *of_lane == target
        })
    }

    async fn publish_to_each(&self, deliveries: Vec<Delivery>, batch: &Batch, report: &Report) {
        let mut parts = vec![Vec::new(); self.publishers.len()];
        for delivery in deliveries {
            parts[self.routes.target(&delivery.message)].push(delivery);
        }
        let parts = parts
            .into_iter()
            .zip(&self.publishers)
            .filter(|(part, _)| !part.is_empty());
        join_all(parts.map(|(part, (name, publisher))| {
            let (name, told) = (Arc::clone(name), report.clone());
            let report = Report::new(move |place, outcome| told.outcome(place, within(&name, outcome)));
            // A panic is kept to its publisher: what it has not reported counts as unknown, and no other's does.
            caught(publisher.publish(batch.of(part), report))
        }))
        .await;
    }
}

#[async_trait]
impl Publisher for Routed {
    async fn publish(&self, batch: Batch, report: Report) {
        let (straight, mixed) = self.divide(&batch.deliveries);
        join(
            self.publish_to_each(straight, &batch, &report),
            self.publish_mixed(mixed, &batch, &report),
        )
        .await;
    }

    fn name(&self) -> &'static str {
        "routed"
    }

    fn capabilities(&self) -> Capabilities {
        let all = self.publishers.iter().map(|(_, publisher)| publisher.capabilities());
        all.reduce(Capabilities::and).unwrap_or_default()
    }

    fn destination(&self, message: &Message) -> Option<Arc<str>> {
        Some(Arc::clone(&self.publishers[self.routes.target(message)].0))
    }

    fn destinations(&self) -> Vec<Arc<str>> {
        self.publishers.iter().map(|(name, _)| Arc::clone(name)).collect()
    }

    async fn check(&self) -> Result<String, PublishError> {
        let checks = self.publishers.iter().map(|(name, publisher)| async move {
            let checked = timeout(CHECK_TIMEOUT, publisher.check()).await;
            let silent = || PublishError::transport(format!("no answer within {}", Readable(CHECK_TIMEOUT)));
            match checked.unwrap_or_else(|_| Err(silent())) {
                Ok(found) => Ok(format!("{name}: {found}")),
                Err(error) => Err(of_publisher(name, error)),
            }
        });
        let mut found = Vec::new();
        let mut failed: Option<PublishError> = None;
        for checked in join_all(checks).await {
            match (checked, &mut failed) {
                (Ok(one), _) => found.push(one),
                (Err(error), None) => failed = Some(error),
                (Err(error), Some(all)) => all.message = format!("{}; {}", all.message, error.message),
            }
        }
        failed.map_or_else(|| Ok(found.join("; ")), Err)
    }

    async fn close(&self) {
        join_all(self.publishers.iter().map(|(_, publisher)| publisher.close())).await;
    }
}

/// The time for one publisher to be checked.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// The failure, with the name of the publisher, which does not know it.
fn of_publisher(name: &str, mut error: PublishError) -> PublishError {
    error.message = format!("publisher {name}: {}", error.message);
    error
}

/// A failure of everything behind one publisher is a failure of one destination.
fn within(name: &Arc<str>, outcome: Outcome) -> Outcome {
    let Outcome::Failed(error) = outcome else {
        return outcome;
    };
    let scope = match &error.scope {
        ErrorScope::Broker => ErrorScope::Destination(Arc::clone(name)),
        ErrorScope::Destination(destination) => ErrorScope::Destination(format!("{name}/{destination}").into()),
        ErrorScope::Partition(partition) => ErrorScope::Partition(format!("{name}/{partition}").into()),
        scope => scope.clone(),
    };
    Outcome::Failed(of_publisher(name, error).within(scope))
}
