//! What a database does for the relay and for operators.
//!
//! A store is verbs over data: one request in, rows out. It decides nothing; the rules are those of
//! [`crate::lifecycle`], and every store says them in SQL. All times are the database's own.

mod error;
mod halving;
mod registry;
mod trial;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::enqueue::{EnqueueError, Enqueued, OutboxOptions};
use crate::integrity::StoredHash;
use crate::lifecycle::{LeaseToken, Settlement, State};
use crate::message::{DEFAULT_NAMESPACE, Message, MessageId};
use crate::wake::WakeSource;

pub use error::{StoreError, StoreErrorKind};
pub use halving::{Halving, SearchDeadline};
pub use registry::{FORGOTTEN_AFTER, LeadRequest, Leadership, RelayBeat, RelayRecord};

/// The identity of one worker, made when it starts and never configured: two processes with equal configuration are
/// still two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// An id that no worker has had.
    #[expect(
        clippy::new_without_default,
        reason = "a default would suggest that two of them are equal"
    )]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id as a UUID.
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for WorkerId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

/// Which messages a relay serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scope {
    /// The namespace. Defaults to `default`.
    pub namespace: String,
    /// Only these topics; all of them if empty. Defaults to all.
    pub topics: Vec<String>,
    /// Only this tenant. Defaults to all, and to messages without one.
    pub tenant: Option<String>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            topics: Vec::new(),
            tenant: None,
        }
    }
}

/// What happens to a key whose head is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadHead {
    /// The rest of the key goes on without it.
    #[default]
    Skip,
    /// The rest of the key waits until an operator replays or discards it.
    Block,
}

/// In which order rows may be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Keys are ignored.
    None,
    /// Rows of one key are claimed in sequence, and none while an earlier one is leased or waiting.
    PerKey {
        /// The policy of topics that are not listed.
        dead_head: DeadHead,
        /// Topics with the opposite policy.
        except: Vec<String>,
    },
}

/// Asks for work.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who asks; written to the rows for the operator's eyes, never used as a fence.
    pub worker: WorkerId,
    /// The fence for what is claimed now. A new one for every claim.
    pub token: LeaseToken,
    /// At most so many rows.
    pub limit: u32,
    /// At most so many bytes of payload, but always one row.
    pub max_bytes: u64,
    /// How many due rows may be looked at to find some whose key is free; as many as it takes without one. A hint for
    /// stores that would have to walk past a large backlog of keys in flight.
    pub look_ahead: Option<u32>,
    /// How long the rows are leased.
    pub lease: Duration,
    /// Rows with so many attempts are not claimed but given up.
    pub max_attempts: u32,
    /// In which order.
    pub ordering: Ordering,
    /// Which messages.
    pub scope: Scope,
    /// Rows that are not to be claimed, because the database refused their claim lately. What follows them in their keys
    /// waits for them all the same.
    pub left_out: Vec<MessageId>,
}

/// Work that was handed out.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// The rows now leased, in order.
    pub messages: Vec<ClaimedMessage>,
    /// Whether these rows come from a worker that let its lease run out. Such rows are never mixed with others, and
    /// their number is limited by [`crate::isolation::reclaim_limit`], because one of them may have killed that worker.
    pub reclaimed: bool,
    /// Rows that had used all their attempts and are dead now.
    pub died: Vec<MessageId>,
    /// Rows that would have been claimed, had the database not refused to write their claim. They are as they were.
    pub refused: Vec<RefusedRow>,
}

/// A row that the database refuses to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// The row.
    pub id: MessageId,
    /// Why, with the remedy where there is one.
    pub error: String,
}

/// A row under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMessage {
    /// What to send.
    pub message: Message,
    /// Why it cannot be published whatever the broker says, such as a type name that gives no topic.
    pub fault: Option<String>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// Claims so far, this one included.
    pub attempts: u32,
    /// The hash made at enqueue, where the table keeps one.
    pub hash: Option<StoredHash>,
    /// The row's version, where the table keeps one.
    pub version: Option<i64>,
    /// The row's own limit of attempts, where the table keeps one; else the policy's holds.
    pub max_attempts: Option<u32>,
}

/// What became of rows whose worker vanished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pending again.
    pub pending: Vec<MessageId>,
    /// Dead, because they had used all their attempts.
    pub died: Vec<MessageId>,
    /// As they were, because the database refused to change them.
    pub refused: Vec<RefusedRow>,
}

/// What became of verdicts. Those that are in no list were applied.
#[derive(Debug, Default)]
pub struct Settled {
    /// The lease was lost: the row is no longer the caller's, and nothing was written.
    pub lost: Vec<MessageId>,
    /// The database refused to write the verdict, and would again. The row is as it was before its claim.
    pub refused: Vec<RefusedVerdict>,
    /// Another transaction has locked the row, or the whole table. It is still under the caller's token, as far as can be
    /// said, and nothing was written.
    pub busy: Vec<BusyRow>,
}

/// A row that another transaction has locked, by itself or with its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyRow {
    /// The row.
    pub id: MessageId,
    /// Who has locked it, in words for an operator, where the database says.
    pub holder: Option<String>,
}

/// What became of leases that were to be prolonged. Those that are in no list are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// Held for longer now.
    pub held: Vec<MessageId>,
    /// Still under the token, as far as can be said, but another transaction has locked the row, or the whole table: the
    /// lease runs on as it was.
    pub busy: Vec<MessageId>,
}

impl Extended {
    /// All leases that are held were prolonged.
    pub fn all(held: Vec<MessageId>) -> Self {
        Self { held, busy: Vec::new() }
    }

    /// None could be prolonged, because another transaction has locked the whole table.
    pub fn busy(busy: Vec<MessageId>) -> Self {
        Self { held: Vec::new(), busy }
    }
}

/// A verdict that the database refused.
#[derive(Debug)]
pub struct RefusedVerdict {
    /// The row.
    pub id: MessageId,
    /// Why.
    pub error: StoreError,
}

impl Settled {
    /// None could be written, because another transaction has locked the whole table. `holder` says who, for an operator.
    pub fn busy(settlements: &[Settlement], holder: &str) -> Self {
        let busy = |settlement: &Settlement| BusyRow {
            id: settlement.id,
            holder: Some(holder.to_owned()),
        };
        Self {
            busy: settlements.iter().map(busy).collect(),
            ..Self::default()
        }
    }

    /// All verdicts were applied but those on `lost`.
    pub fn but(lost: Vec<MessageId>) -> Self {
        Self {
            lost,
            ..Self::default()
        }
    }
}

/// What a table asks of the engine, because of what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is there or not, whatever the others are; they are no states of one thing"
)]
pub struct Terms {
    /// The rows of a claim are locked by one transaction, so their verdicts are written with one call.
    pub settle_together: bool,
    /// There is no place for a count of attempts, so all of them are made within one claim.
    pub attempts_in_place: bool,
    /// There is no place to say which of many relays is active.
    pub without_lead: bool,
    /// Rows are written once: nobody mends them, and none is replayed where it stands.
    pub append_only: bool,
}

/// The relay's verbs.
///
/// # Contract
/// - **claim** takes, in one transaction, rows that are pending and due, or rows whose lease ran out; it counts the
///   attempt, sets the lease and `updated_at`, and returns them by sequence. No row is ever under two live leases.
///   Under [`Ordering::PerKey`] claims of one outbox are serialised. A row whose claim the database refuses (a constraint,
///   a trigger) keeps nobody else from being claimed but those that follow it in its key: the store finds it by
///   [`Halving`] and names it.
/// - **settle** applies each verdict only to a processing row under the same token, and returns the ids it could not
///   settle: their lease was lost. A lost lease is never silent. A verdict that the database refuses (a constraint, a
///   trigger, a right that is missing) fails the call as a whole and leaves every row as it was, so that the engine can
///   find the culprit by halving; under [`Terms::settle_together`], where the call ends the transaction, the store
///   halves under savepoints itself and names the refused ones. A row that another transaction has locked is not waited
///   for, or only for a moment: it is named as busy, and its neighbours are settled.
/// - **extend** prolongs the leases that are still held under the token. Rows that another transaction has locked are
///   not waited for either, and are neither prolonged nor lost.
/// - **recover** takes back rows from workers that vanished, where the table does not say until when a claim holds and a
///   claim therefore cannot: those that were locked longer than `stalled_after` ago are pending again, or dead if
///   they have used all their attempts. Those that the database refuses to change are named and keep nobody else.
/// - **sweep** gives up rows in the relay's scope that used all their attempts without a verdict.
/// - **purge** removes delivered rows older than `keep` and dedupe keys past their window, at most `limit` of each, and
///   returns how many; never a row that is not delivered.
/// - **beat** writes down what a relay says of itself: its first beat is its start, and each one says when it was last
///   heard. It also removes relays that were not heard for [`FORGOTTEN_AFTER`].
/// - **lead** makes the one who asks the leader of its namespace until its lease is over, unless another one's is not.
///   Of any number that ask at the same time one gets it. A leader that asks again in time goes on leading.
/// - **leave** takes a relay off the list and ends its leadership, so that another one can follow at once.
#[async_trait]
pub trait RelayStore: Send + Sync + 'static {
    /// Hands out work.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Applies verdicts; says which of them it could not apply.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError>;

    /// Prolongs leases; says which of them are still held.
    async fn extend(&self, token: LeaseToken, ids: &[MessageId], lease: Duration) -> Result<Extended, StoreError>;

    /// What the table asks of the engine.
    fn terms(&self) -> Terms {
        Terms::default()
    }

    /// Takes back what vanished workers held, where a claim cannot.
    async fn recover(
        &self,
        _scope: &Scope,
        _max_attempts: u32,
        _stalled_after: Duration,
    ) -> Result<Recovered, StoreError> {
        Ok(Recovered::default())
    }

    /// Gives up exhausted rows.
    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError>;

    /// Removes what is no longer needed; returns how many rows.
    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError>;

    /// Counts what is there.
    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError>;

    /// Says that a relay is there.
    async fn beat(&self, beat: &RelayBeat) -> Result<(), StoreError>;

    /// Asks to be the one active relay; says who is.
    async fn lead(&self, request: &LeadRequest) -> Result<Leadership, StoreError>;

    /// Says that a relay is gone.
    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// A source of wake-ups, where the database has one.
    async fn wake_source(&self) -> Option<Box<dyn WakeSource>> {
        None
    }

    /// Whether everything is there that a relay of this scope needs: connection, tables, rights. Also writes every verdict
    /// once, to rows of the scope, in a transaction that is rolled back, so that what the database would refuse is known
    /// before anything is published. Rows of others are left alone: what their triggers say is not about this relay.
    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError>;

    /// The same for the default scope.
    async fn check(&self) -> Result<(), StoreError> {
        self.check_for(&Scope::default()).await
    }
}

#[async_trait]
impl<S: RelayStore + ?Sized> RelayStore for Arc<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        (**self).claim(request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        (**self).settle(settlements).await
    }

    async fn extend(&self, token: LeaseToken, ids: &[MessageId], lease: Duration) -> Result<Extended, StoreError> {
        (**self).extend(token, ids, lease).await
    }

    fn terms(&self) -> Terms {
        (**self).terms()
    }

    async fn recover(
        &self,
        scope: &Scope,
        max_attempts: u32,
        stalled_after: Duration,
    ) -> Result<Recovered, StoreError> {
        (**self).recover(scope, max_attempts, stalled_after).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        (**self).sweep(scope, max_attempts).await
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        (**self).purge(keep, limit).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        (**self).stats(namespace).await
    }

    async fn beat(&self, beat: &RelayBeat) -> Result<(), StoreError> {
        (**self).beat(beat).await
    }

    async fn lead(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        (**self).lead(request).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        (**self).leave(worker).await
    }

    async fn wake_source(&self) -> Option<Box<dyn WakeSource>> {
        (**self).wake_source().await
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        (**self).check_for(scope).await
    }
}

/// What is in an outbox. Delivered rows are not counted: there may be millions.
/// Numbers above 100,000 may be estimates, so that asking every few seconds costs little.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutboxStats {
    /// Waiting to be claimed, due or not.
    pub pending: u64,
    /// Of these, not due yet: waiting for a retry or a scheduled time.
    pub waiting: u64,
    /// Under a lease.
    pub processing: u64,
    /// Given up.
    pub dead: u64,
    /// Age of the oldest row that is pending or processing.
    pub oldest_seconds: f64,
}

/// Which rows an operator means. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// With this topic.
    pub topic: Option<String>,
    /// With this ordering key.
    pub ordering_key: Option<String>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// With one of these ids; any if empty.
    pub ids: Vec<MessageId>,
}

/// A row as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was enqueued.
    pub message: Message,
    /// Its number, where the table numbers its rows.
    pub sequence: Option<i64>,
    /// Where it stands.
    pub state: State,
    /// Claims so far.
    pub attempts: u32,
    /// Not to be claimed earlier. When it was enqueued, where the table does not say.
    pub next_attempt_at: DateTime<Utc>,
    /// Which worker has it.
    pub locked_by: Option<String>,
    /// Until when.
    pub locked_until: Option<DateTime<Utc>>,
    /// The last failure.
    pub last_error: Option<String>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it last changed. When it was enqueued, where the table does not say.
    pub updated_at: DateTime<Utc>,
    /// When it was delivered.
    pub delivered_at: Option<DateTime<Utc>>,
}

/// An operator's verbs.
///
/// # Contract
/// - **replay** makes dead rows pending with a fresh count of attempts; **discard** removes dead rows. Both touch only
///   rows that are dead at that moment and return the ids they changed: of two operators who replay the same row one
///   gets an empty answer.
#[async_trait]
pub trait AdminStore: Send + Sync + 'static {
    /// Rows in the table's order, beginning after the row `after`. A row that is gone cannot be gone on from: that is an
    /// error, not an empty page.
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// One row.
    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError>;

    /// Makes dead rows pending again, at most `limit`.
    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError>;

    /// Removes dead rows, at most `limit`.
    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError>;

    /// How many rows [`RelayStore::purge`] would remove if it were called until nothing is left to remove. Removes nothing.
    async fn purgeable(&self, keep: Duration) -> Result<u64, StoreError>;

    /// The relays of a namespace that were heard and have not left, oldest first. Whether they are alive is for the
    /// reader to say: a relay that died cannot leave.
    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError>;
}

/// One step of a schema's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its place, from 1.
    pub version: i64,
    /// What it does.
    pub name: &'static str,
    /// The finished SQL.
    pub sql: String,
}

/// The schema's verbs.
///
/// # Contract
/// - **migrate** applies what is missing, each step once, also when several processes start at the same moment; run
///   again it does nothing.
#[async_trait]
pub trait SchemaStore: Send + Sync + 'static {
    /// All steps that this version knows.
    fn migrations(&self) -> Vec<Migration>;

    /// The versions that were applied; none if the tables are not there.
    async fn applied(&self) -> Result<Vec<i64>, StoreError>;

    /// Applies what is missing and returns it.
    async fn migrate(&self) -> Result<Vec<Migration>, StoreError>;

    /// Every statement that the store runs, by name, finished with the names of its table map.
    fn statements(&self) -> Vec<(&'static str, String)>;
}

/// Enqueueing for callers that have no transaction of their own, such as the command line.
#[async_trait]
pub trait ProducerStore: Send + Sync + 'static {
    /// Enqueues all messages in one transaction and commits it.
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError>;
}

/// Everything a database does for Posthaste, for programs that choose it at run time.
pub trait Store: RelayStore + AdminStore + SchemaStore + ProducerStore {}

impl<S: RelayStore + AdminStore + SchemaStore + ProducerStore> Store for S {}
