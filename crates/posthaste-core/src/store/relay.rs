//! The relay's verbs.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Claim, ClaimRequest, ExtendRequest, Extended, LeadRequest, Leadership, OutboxStats, PurgeRequest, Purged, Reading,
    RecoverRequest, Recovered, RelayRegistry, Scope, Settled, StoreError, TableGauges, WorkerId,
};
#[cfg(doc)]
use super::{GAUGE_BOUND, Halving, KeyOrdering, StoreErrorKind};
use crate::lifecycle::Settlement;
use crate::message::MessageId;
use crate::wake::Listener;

/// What a table asks of the engine, because of what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own about a table"
)]
pub struct StoreRequirements {
    /// The rows of a claim are locked by one transaction, so their verdicts are written with one call.
    pub batch_settlement: bool,
    /// There is no place for a count of attempts, so all of them are made within one claim.
    pub in_memory_attempts: bool,
    /// Rows are written once: they are not fixed, and none is replayed where it stands.
    pub append_only: bool,
    /// It does not say when a message died, so dead messages cannot be removed by age.
    pub undated_deaths: bool,
    /// What dies is copied to a table of dead letters beside the outbox, which may refuse it where the outbox does not.
    pub dead_letter_table: bool,
    /// A message is another row once it has failed. What stays is the id of its event.
    pub known_by_event: bool,
}

/// The relay's verbs.
///
/// # Contract
/// - **claim** takes, in one transaction, rows that are pending and due, or rows whose lease ran out; it counts the
///   attempt, sets the lease and `updated_at`, and returns them by sequence. No row is ever under two live leases.
///   Under [`KeyOrdering::PerKey`] claims of one outbox are serialised. A row whose claim the database refuses (a constraint,
///   a trigger) keeps no others from being claimed but those that follow it in its key: the store finds it by
///   [`Halving`] and names it.
/// - **settle** applies each verdict only to a processing row under the same token, and returns the ids it could not
///   settle: their lease was lost. A lost lease is never silent. A verdict that the database refuses (a constraint, a
///   trigger, a right that is missing) fails the call as a whole and leaves every row as it was, so that the engine can
///   find the culprit by halving; under [`StoreRequirements::batch_settlement`], where the call ends the transaction, the store
///   halves under savepoints itself and names the refused ones. A row that another transaction has locked is not waited
///   for, or only for a moment: it is named as busy, and its neighbours are settled.
/// - **extend** prolongs the leases that are still held under the token. Rows that another transaction has locked are
///   not waited for either, and are neither prolonged nor lost.
/// - **rescan** lets the next claim look at all that is due, for stores whose claims look at some of it from time to time only. A
///   drain asks for it before it ends.
/// - **recover** takes back rows from workers that crashed, where the table does not say until when a claim holds and a
///   claim therefore cannot: those that were locked longer than `stalled_after` ago are pending again, or dead if
///   they have used all their attempts. Those that the database refuses to change are named and keep no others.
/// - **sweep** gives up rows in the relay's scope that used all their attempts without a verdict.
/// - **purge** removes what the request names and nothing else, at most `limit` of each kind, and says what it removed; never
///   a row that is neither delivered nor dead, and never the newest row of a cursor.
/// - **`table_gauges`** is what is shown every few seconds: bounded in cost, however long the backlog is.
/// - **`elect_janitor`** makes one relay of a namespace the one that counts and purges; another one follows when its lease is
///   over, or at once after **`resign_janitor`**. A store that has no means for that grants it to all.
/// - **ping** asks the database for an answer and changes nothing.
/// - **`keep_alive`** is called every few seconds while a relay runs, also when there is nothing to claim, and **close** when it
///   has ended, for stores that keep something for the relay between its calls.
///
/// # Errors
/// Every verb says by [`StoreErrorKind`] what the engine may do about it. Those that may pass
/// ([`is_transient`](StoreErrorKind::is_transient): the server is gone, the pool is empty, a deadlock, a standby) are tried again
/// until they do. [`StoreErrorKind::Other`] from **settle** is taken for a refusal of some verdict, which is searched for.
/// [`StoreErrorKind::Unsupported`] says that the table has no place for what was asked; **`check_for`** says so before anything
/// is published. [`StoreErrorKind::Access`] and [`StoreErrorKind::SchemaMissing`] are for an operator, with the remedy in the
/// error; the relay goes on trying, for they are fixed while it runs.
#[async_trait]
pub trait RelayStore: Send + Sync + 'static {
    /// Hands out work.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Applies verdicts; says which of them it could not apply.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError>;

    /// Prolongs leases; says which of them are still held.
    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError>;

    /// Lets the next claim look at everything.
    async fn rescan(&self) {}

    /// What the table asks of the engine.
    fn requirements(&self) -> StoreRequirements {
        StoreRequirements::default()
    }

    /// Takes back what crashed workers held, where a claim cannot.
    async fn recover(&self, _request: &RecoverRequest) -> Result<Recovered, StoreError> {
        Ok(Recovered::default())
    }

    /// Gives up exhausted rows.
    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError>;

    /// Removes what is no longer needed; says what that was.
    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError>;

    /// Counts what is there.
    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError>;

    /// Counts what is there up to [`GAUGE_BOUND`] of a kind, also by topic where the table has one.
    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        let stats = self.stats(namespace).await?;
        let topics = Vec::new();
        let shards = Vec::new();
        Ok(TableGauges { stats, topics, shards })
    }

    /// Asks to be the one relay that counts and purges; says who is.
    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        match self.registry() {
            Some(registry) => registry.elect_leader(request).await,
            None => Ok(Leadership::Held),
        }
    }

    /// Lets another relay count and purge at once. Where there is a registry, deregistering does that.
    async fn resign_janitor(&self, _worker: WorkerId) -> Result<(), StoreError> {
        Ok(())
    }

    /// Where relays say that they are there and agree on a leader, where the outbox has a place for that.
    fn registry(&self) -> Option<&dyn RelayRegistry> {
        None
    }

    /// Asks the database for the least that it can answer, for health checks of a relay that has nothing else to ask. One
    /// whose connections are all in use is not asked: those that use them see whether it answers.
    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Lets the database hear that the relay lives.
    async fn keep_alive(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What it knows of how it reads, where it reads a log. Asked every second, so it asks nobody.
    fn reading(&self) -> Reading {
        Reading::default()
    }

    /// Gives back what was kept for the relay, so that another one can have it at once.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// A source of wake-ups, where the database has one.
    async fn listener(&self) -> Option<Box<dyn Listener>> {
        None
    }

    /// What is still in a queue beside this outbox, which its relays do not serve: messages that were not moved to the log. What of
    /// it is to be delivered is part of [`RelayStore::stats`] as well. Nothing where there is no such queue.
    async fn left_in_queue(&self) -> Result<OutboxStats, StoreError> {
        Ok(OutboxStats::default())
    }

    /// What is to be delivered from a log beside this outbox that nobody reads: its relays do not serve it. Asked every few seconds, so
    /// it is counted up to a bound. Nothing where there is no such log.
    async fn left_in_log(&self) -> Result<OutboxStats, StoreError> {
        Ok(OutboxStats::default())
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

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        (**self).extend(request).await
    }

    async fn rescan(&self) {
        (**self).rescan().await;
    }

    fn requirements(&self) -> StoreRequirements {
        (**self).requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        (**self).recover(request).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        (**self).sweep(scope, max_attempts).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        (**self).purge(request).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        (**self).stats(namespace).await
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        (**self).table_gauges(namespace).await
    }

    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        (**self).elect_janitor(request).await
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        (**self).resign_janitor(worker).await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        (**self).registry()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        (**self).ping().await
    }

    async fn keep_alive(&self) -> Result<(), StoreError> {
        (**self).keep_alive().await
    }

    fn reading(&self) -> Reading {
        (**self).reading()
    }

    async fn close(&self) -> Result<(), StoreError> {
        (**self).close().await
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        (**self).listener().await
    }

    async fn left_in_queue(&self) -> Result<OutboxStats, StoreError> {
        (**self).left_in_queue().await
    }

    async fn left_in_log(&self) -> Result<OutboxStats, StoreError> {
        (**self).left_in_log().await
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        (**self).check_for(scope).await
    }
}
