//! The steps that cases are made of: producing messages, and working as a relay by hand.

use std::collections::HashSet;
use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, State, Verdict};
use posthaste_core::store::{
    Claim, ClaimRequest, ClaimedMessage, DeadHead, Filter, KeyOrdering, PurgeRequest, Record, RefusedRow,
    RelayRegistry, Scope, StoreErrorKind, WorkerId,
};
use posthaste_core::{AdminStore, EnqueueError, Enqueued, Message, MessageId, OutboxOptions, RelayStore, StoreError};

use crate::backend::Backend;

/// How long the cases lease rows.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// A little shorter than a lease.
pub(super) const ALMOST_LEASE: Duration = Duration::from_secs(25);

/// A little longer than a lease.
pub(super) const LEASE_AND_MORE: Duration = Duration::from_secs(31);

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_mins(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);
pub(super) const DAY: Duration = Duration::from_hours(24);

/// Removes what nobody can miss; returns how many rows that were.
pub(super) async fn purge<B: Backend>(b: &B, age: Duration, limit: u32) -> u64 {
    let purged = b.store().purge(&PurgeRequest::older_than(age, limit)).await;
    purged.expect("purge works").rows()
}

/// A message without a key.
pub(super) fn plain(payload: &str) -> Message {
    Message::new("orders", payload.to_owned())
}

/// A message with a key.
pub(super) fn keyed(key: &str, payload: &str) -> Message {
    plain(payload).key(key)
}

/// Enqueues in one transaction that is committed if the outbox accepts the messages, else rolled back.
pub(super) async fn try_enqueue<B: Backend>(
    b: &B,
    messages: Vec<Message>,
    options: &OutboxOptions,
) -> Result<Vec<Enqueued>, EnqueueError> {
    let mut tx = b.begin().await;
    let outcome = b.enqueue(&mut tx, messages, options).await;
    tokio::task::yield_now().await; // so that transactions in a race overlap on every backend
    match outcome {
        Ok(_) => b.commit(tx).await,
        Err(_) => b.rollback(tx).await,
    }
    outcome
}

/// Enqueues and commits messages with default options.
pub(super) async fn enqueue<B: Backend>(b: &B, messages: impl IntoIterator<Item = Message>) -> Vec<Enqueued> {
    try_enqueue(b, messages.into_iter().collect(), &OutboxOptions::default())
        .await
        .expect("the messages are good")
}

/// Enqueues and commits messages that are all new; returns their ids.
pub(super) async fn enqueue_new<B: Backend>(b: &B, messages: impl IntoIterator<Item = Message>) -> Vec<MessageId> {
    let outcomes = enqueue(b, messages).await;
    assert!(
        outcomes.iter().all(|outcome| outcome.is_new()),
        "all are new: {outcomes:?}"
    );
    outcomes.into_iter().map(Enqueued::id).collect()
}

/// A row that must be there.
pub(super) async fn record<B: Backend>(b: &B, id: MessageId) -> Record {
    let shown = read(async || b.store().show(id).await).await;
    shown.expect("show works").expect("the row is there")
}

/// Looks a few times, since a server that has much else to do may end a connection, or a pooler's, that it takes for idle.
async fn read<T>(mut look: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut found = look().await;
    for _ in 0..5 {
        match &found {
            Err(error) if error.kind.is_transient() => found = look().await,
            _ => break,
        }
    }
    found
}

/// The state of a row that must be there.
pub(super) async fn state<B: Backend>(b: &B, id: MessageId) -> State {
    record(b, id).await.state
}

/// All rows by sequence.
pub(super) async fn records<B: Backend>(b: &B) -> Vec<Record> {
    let listed = read(async || b.store().list(&Filter::default(), None, 10_000).await).await;
    listed.expect("list works")
}

/// Kills a pending row through a verdict, with whatever its claim brings along given back.
pub(super) async fn kill<B: Backend>(b: &B, id: MessageId) {
    let work = Worker::new().claim(b, 1_000).await;
    let settlements = work.messages.iter().map(|claimed| {
        let verdict = if claimed.message.id == id {
            Verdict::Dead { error: "killed".into() }
        } else {
            Verdict::Released
        };
        work.verdict(claimed.message.id, verdict)
    });
    assert_eq!(settle(b, settlements.collect()).await, [], "no lease was lost");
    assert_eq!(state(b, id).await, State::Dead);
}

/// Gives a concurrent transaction the time to run into its wait. The cases hold without it, but would prove less.
pub(super) async fn others_wait() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Makes a dead row pending again and lets a moment pass, after which it is due.
pub(super) async fn replay<B: Backend>(b: &B, id: MessageId) {
    let filter = Filter {
        ids: vec![id],
        ..Filter::default()
    };
    assert_eq!(b.store().replay(&filter, 10).await.expect("replay works"), [id]);
    b.pass_time(SECOND).await;
}

/// Claims and delivers until nothing more is given out; returns the order of delivery.
pub(super) async fn deliver_all<B: Backend>(b: &B, worker: &Worker) -> Vec<MessageId> {
    let mut delivered = Vec::new();
    loop {
        let work = worker.claim(b, 1_000).await;
        if work.messages.is_empty() {
            return delivered;
        }
        delivered.extend(work.ids());
        work.deliver(b).await;
    }
}

/// Settles and returns the ids whose lease was lost. A row may be locked for a moment by another transaction.
pub(super) async fn settle<B: Backend>(b: &B, mut settlements: Vec<Settlement>) -> Vec<MessageId> {
    let mut lost = Vec::new();
    for _ in 0..100 {
        let settled = b.store().settle(&settlements).await.expect("settle works");
        lost.extend(settled.lost);
        let busy: HashSet<_> = settled.busy.iter().map(|row| row.id).collect();
        if busy.is_empty() {
            return lost;
        }
        settlements.retain(|settlement| busy.contains(&settlement.id));
    }
    panic!("the rows of {settlements:?} stay locked");
}

/// A relay's worker that claims when told.
#[derive(Clone)]
pub(super) struct Worker {
    request: ClaimRequest,
}

impl Worker {
    /// Claims in order, from the default namespace, with five attempts.
    pub(super) fn new() -> Self {
        Self {
            request: ClaimRequest {
                worker: WorkerId::new(),
                token: LeaseToken::new(),
                limit: 0,
                max_bytes: u64::from(u32::MAX),
                scan_limit: None,
                lease: LEASE,
                max_attempts: 5,
                ordering: KeyOrdering::PerKey {
                    dead_head: DeadHead::Skip,
                    except: Vec::new(),
                },
                scope: Scope::default(),
                left_out: Vec::new(),
                pipelined: false,
            },
        }
    }

    /// The same for another namespace.
    pub(super) fn of_namespace(namespace: &str) -> Self {
        Self::new().scope(Scope {
            namespace: namespace.to_owned(),
            ..Scope::default()
        })
    }

    pub(super) fn id(&self) -> WorkerId {
        self.request.worker
    }

    pub(super) fn unordered(mut self) -> Self {
        self.request.ordering = KeyOrdering::None;
        self
    }

    pub(super) fn dead_heads(mut self, dead_head: DeadHead, except: &[&str]) -> Self {
        let except = except.iter().map(|&topic| topic.to_owned()).collect();
        self.request.ordering = KeyOrdering::PerKey { dead_head, except };
        self
    }

    pub(super) fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.request.max_attempts = max_attempts;
        self
    }

    pub(super) fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.request.max_bytes = max_bytes;
        self
    }

    pub(super) fn leaving_out(mut self, ids: &[MessageId]) -> Self {
        self.request.left_out = ids.to_vec();
        self
    }

    pub(super) fn scope(mut self, scope: Scope) -> Self {
        self.request.scope = scope;
        self
    }

    /// Claims under a token of its own. Others may have a lock that it needs for too long, as any relay finds now and
    /// then, which claims again.
    pub(super) async fn claim<B: Backend>(&self, b: &B, limit: u32) -> Work {
        let mut claimed = self.try_claim(b, limit).await;
        for _ in 0..20 {
            match &claimed {
                Err(error) if error.kind == StoreErrorKind::Contention => claimed = self.try_claim(b, limit).await,
                _ => break,
            }
        }
        claimed.expect("claim works")
    }

    pub(super) async fn try_claim<B: Backend>(&self, b: &B, limit: u32) -> Result<Work, StoreError> {
        let token = LeaseToken::new();
        let request = ClaimRequest {
            token,
            limit,
            ..self.request.clone()
        };
        let Claim {
            messages,
            reclaimed,
            died,
            refused,
        } = b.store().claim(&request).await?;
        Ok(Work {
            token,
            messages,
            reclaimed,
            died,
            refused,
        })
    }
}

/// What a claim brought.
pub(super) struct Work {
    pub(super) token: LeaseToken,
    pub(super) messages: Vec<ClaimedMessage>,
    pub(super) reclaimed: bool,
    pub(super) died: Vec<MessageId>,
    pub(super) refused: Vec<RefusedRow>,
}

impl Work {
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|claimed| claimed.message.id).collect()
    }

    pub(super) fn verdict(&self, id: MessageId, verdict: Verdict) -> Settlement {
        let version = self
            .messages
            .iter()
            .find(|claimed| claimed.message.id == id)
            .and_then(|claimed| claimed.version);
        Settlement {
            id,
            token: self.token,
            verdict,
            version,
            without_letter: false,
        }
    }

    /// Settles every row with the same verdict and returns the ids whose lease was lost.
    pub(super) async fn settle<B: Backend>(&self, b: &B, verdict: Verdict) -> Vec<MessageId> {
        let ids = self.ids().into_iter();
        settle(b, ids.map(|id| self.verdict(id, verdict.clone())).collect()).await
    }

    /// Reports every row delivered; no lease may have been lost.
    pub(super) async fn deliver<B: Backend>(&self, b: &B) {
        assert_eq!(self.settle(b, Verdict::Delivered).await, [], "no lease was lost");
    }
}

/// A verdict of failure that is due again after `delay`.
pub(super) fn retry(delay: Duration) -> Verdict {
    Verdict::Retry {
        delay,
        error: "the broker is unavailable".into(),
    }
}

/// The list of relays, for cases that need one.
pub(super) fn registry<B: Backend>(b: &B) -> &dyn RelayRegistry {
    b.store().registry().expect("the table has a list of relays")
}
