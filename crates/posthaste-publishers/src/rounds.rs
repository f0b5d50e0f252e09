//! For transports that take many messages in one request, and answer for each or for all.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use posthaste_core::MessageId;
use posthaste_core::publisher::{
    Batch, Capabilities, Delivery, ErrorKind, ErrorScope, LaneOrder, Outcome, PublishError, Publisher, Receipt, Report,
};

use tokio::time::Instant;

use crate::each::{caught, timed_out};
use crate::lanes::{LaneReport, lanes};
use crate::turn::{Turn, Turns};

/// Sends many messages in one request. Wrapped in [`InRounds`] it is a [`Publisher`].
#[async_trait]
pub trait PublishRound: Send + Sync + 'static {
    /// Sends the messages, no two of which are of one lane; returns what became of each, in their order, once those that
    /// succeeded have been acknowledged durably.
    ///
    /// # Errors
    ///
    /// That of the request as a whole. One that reaches no further than [`ErrorScope::Message`] may be due to a single
    /// message: the request is repeated in halves until that message is alone.
    async fn publish_round(&self, round: &[&Delivery]) -> Result<Vec<Result<Receipt, PublishError>>, PublishError>;

    /// A name for logs and metrics, such as `http`.
    fn name(&self) -> &'static str;

    /// What to report of messages whose request was not answered in time.
    fn timed_out(&self, after: Duration) -> PublishError {
        timed_out(self.name(), after)
    }

    /// See [`Publisher::check`].
    ///
    /// # Errors
    ///
    /// What publishing would fail with.
    async fn check(&self) -> Result<String, PublishError> {
        Ok(self.name().to_owned())
    }

    /// See [`Publisher::close`].
    async fn close(&self) {}
}

/// Publishes a batch in rounds: each request has at most one message of a lane, so that a failure in the middle of it never
/// lets a later message of a lane go ahead of an earlier one.
#[derive(Clone, Debug)]
pub struct InRounds<P> {
    publisher: P,
    max_messages: usize,
    max_bytes: usize,
    limits: Arc<Limits>,
    turns: Arc<Turns>,
}

impl<P> InRounds<P> {
    /// The most messages of a request unless [`InRounds::max_request`] says otherwise.
    pub const DEFAULT_MAX_MESSAGES: usize = 100;
    /// The most bytes of payload of a request unless [`InRounds::max_request`] says otherwise.
    pub const DEFAULT_MAX_BYTES: usize = 1024 * 1024;
    /// How many requests are under way unless [`InRounds::limits`] says otherwise.
    pub const DEFAULT_CONCURRENCY: usize = 4;
    /// How long a request may take unless [`InRounds::limits`] says otherwise.
    pub const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(20);

    /// Wraps `publisher`.
    pub fn new(publisher: P) -> Self {
        Self {
            publisher,
            max_messages: Self::DEFAULT_MAX_MESSAGES,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            limits: Arc::default(),
            turns: Arc::new(Turns::new(Self::DEFAULT_CONCURRENCY, Self::DEFAULT_ANSWER_WITHIN)),
        }
    }

    /// The most messages and bytes of payload of one request; a single larger message is sent alone.
    #[must_use]
    pub fn max_request(mut self, messages: usize, bytes: usize) -> Self {
        self.max_messages = messages.max(1);
        self.max_bytes = bytes;
        self
    }

    /// How many requests of all batches together are under way, and how long each may take, waiting for its turn and for
    /// a pause that the receiver asked for included.
    #[must_use]
    pub fn limits(self, concurrency: usize, answer_within: Duration) -> Self {
        self.with_turns(Arc::new(Turns::new(concurrency, answer_within)))
    }

    pub(crate) fn with_turns(mut self, turns: Arc<Turns>) -> Self {
        self.turns = turns;
        self
    }
}

#[async_trait]
impl<P: PublishRound> Publisher for InRounds<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        let reporter = Reporter(Mutex::new(LaneReport::new(&batch, &report)));
        let mut ready: VecDeque<Lane<'_>> = lanes(&batch.deliveries).into_iter().map(VecDeque::from).collect();
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.turns.max_in_flight() && !ready.is_empty() {
                let chosen = self.choose(&mut ready);
                under_way.push(self.publish_heads(chosen, &batch, &reporter));
            }
            match under_way.next().await {
                Some(lanes) => ready.extend(lanes.into_iter().filter(|lane| !lane.is_empty())),
                None => return,
            }
        }
    }

    fn name(&self) -> &'static str {
        self.publisher.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::OneAtATime)
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.publisher.check().await
    }

    async fn close(&self) {
        self.publisher.close().await;
    }
}

/// What is left of a lane, in order.
type Lane<'a> = VecDeque<&'a Delivery>;

impl<P: PublishRound> InRounds<P> {
    /// Takes lanes whose heads fit into one request, and at least one.
    fn choose<'a>(&self, ready: &mut VecDeque<Lane<'a>>) -> Vec<Lane<'a>> {
        let mut chosen = Vec::new();
        let (mut bytes, mut most) = (0, self.max_messages);
        while let Some(lane) = ready.pop_front() {
            let Some(head) = lane.front() else { continue };
            bytes += head.message.payload.len();
            most = most.min(self.limits.of(head.message.id));
            if !chosen.is_empty() && (bytes > self.max_bytes || chosen.len() >= most) {
                ready.push_front(lane);
                break;
            }
            chosen.push(lane);
        }
        chosen
    }

    /// Sends the heads of these lanes; returns the lanes without them. What follows in a lane that is stopped has been
    /// reported.
    async fn publish_heads<'a>(
        &self,
        mut lanes: Vec<Lane<'a>>,
        batch: &'a Batch,
        reporter: &Reporter<'a>,
    ) -> Vec<Lane<'a>> {
        let heads: Vec<&'a Delivery> = lanes.iter_mut().filter_map(VecDeque::pop_front).collect();
        self.publish_round(&heads, batch, reporter).await;
        let mut report = reporter.lock();
        for lane in &mut lanes {
            while let Some(next) = lane.pop_front_if(|next| report.is_stopped(next)) {
                report.admit(next);
            }
        }
        lanes
    }

    /// Sends a round, in ever smaller parts if it fails as a whole by something that may be due to one message. What is
    /// left when half of the time is over comes again, in smaller requests: whoever waits must not take the search for
    /// silence.
    async fn publish_round<'a>(&self, round: &[&'a Delivery], batch: &'a Batch, reporter: &Reporter<'a>) {
        let latest = Instant::now() + self.turns.answer_within() / 2;
        let mut parts = vec![round.to_vec()];
        while let Some(mut part) = parts.pop() {
            if Instant::now() > latest {
                reporter.all(&part, &Outcome::NotAttempted);
                continue;
            }
            let Some(mut turn) = self.turns.take().await else {
                reporter.all(&part, &Outcome::NotAttempted);
                continue;
            };
            match self.send(&mut part, &mut turn, batch, reporter).await {
                Ok(results) => {
                    self.limits.forget(&part);
                    reporter.answers(&part, results, self.publisher.name());
                }
                Err(error) if part.len() > 1 && error.scope == ErrorScope::Message => {
                    self.limits.halve(&part);
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Err(error) => {
                    if error.kind == ErrorKind::Transport {
                        self.limits.halve(&part);
                    }
                    reporter.together(&part, &error);
                }
            }
        }
    }

    /// Sends what may be sent of a part, and again if the receiver asks for a pause and there is time for it. What may not
    /// be sent is reported and taken out of the part.
    async fn send<'a>(
        &self,
        part: &mut Vec<&'a Delivery>,
        turn: &mut Turn<'_>,
        batch: &'a Batch,
        reporter: &Reporter<'a>,
    ) -> Result<Vec<Result<Receipt, PublishError>>, PublishError> {
        loop {
            let Some(first) = part.first() else {
                return Ok(Vec::new());
            };
            if let Err(outcome) = turn.comes(first, batch).await {
                reporter.all(part, &outcome);
                part.clear();
                continue;
            }
            part.retain(|delivery| reporter.lock().admit(delivery));
            if part.is_empty() {
                continue;
            }
            let sending = caught(async { self.publisher.publish_round(part).await });
            let sent = match tokio::time::timeout_at(turn.deadline(), sending).await {
                Ok(sent) => sent.flatten(),
                Err(_) => Err(self.publisher.timed_out(self.turns.answer_within())),
            };
            match sent {
                Err(error) if matches!(error.kind, ErrorKind::Throttled { .. }) => turn.throttled(error),
                sent => return sent,
            }
        }
    }
}

/// How large a request may be that has a certain message: half as large as the last one of it that failed. One that breaks
/// the receiver is alone after a few, however many others succeed meanwhile.
#[derive(Debug, Default)]
struct Limits(Mutex<HashMap<MessageId, usize>>);

/// More messages than this are not remembered.
const MAX_LIMITS: usize = 10_000;

impl Limits {
    fn of(&self, id: MessageId) -> usize {
        self.lock().get(&id).copied().unwrap_or(usize::MAX)
    }

    fn halve(&self, part: &[&Delivery]) {
        let mut limits = self.lock();
        if limits.len() + part.len() > MAX_LIMITS {
            limits.clear();
        }
        limits.extend(
            part.iter()
                .map(|delivery| (delivery.message.id, (part.len() / 2).max(1))),
        );
    }

    fn forget(&self, part: &[&Delivery]) {
        let mut limits = self.lock();
        if !limits.is_empty() {
            for delivery in part {
                limits.remove(&delivery.message.id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, usize>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The report, shared by the rounds of a batch.
struct Reporter<'a>(Mutex<LaneReport<'a>>);

impl<'a> Reporter<'a> {
    fn lock(&self) -> MutexGuard<'_, LaneReport<'a>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self, part: &[&'a Delivery], outcome: &Outcome) {
        for delivery in part {
            self.lock().outcome(delivery, outcome.clone());
        }
    }

    /// A request failed as a whole. Only of one that did not arrive is it known that a smaller one may tell more: after any
    /// other failure messages would come again at once, without end.
    fn together(&self, part: &[&'a Delivery], error: &PublishError) {
        let is_shared = part.len() > 1 && error.kind == ErrorKind::Transport;
        for (place, delivery) in part.iter().enumerate() {
            let error = error.clone();
            let error = if is_shared { error.shared(place == 0) } else { error };
            self.lock().outcome(delivery, Outcome::Failed(error));
        }
    }

    fn answers(&self, part: &[&'a Delivery], results: Vec<Result<Receipt, PublishError>>, name: &str) {
        let mut results = results.into_iter();
        for delivery in part {
            let result = results.next().unwrap_or_else(|| {
                Err(PublishError::unknown(format!(
                    "{name}: the answer says nothing of this message"
                )))
            });
            self.lock().answer(delivery, result);
        }
    }
}
