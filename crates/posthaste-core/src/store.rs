//! What a database does for the relay and for operators.
//!
//! A store is verbs over data: one request in, rows out. It decides nothing; the rules are those of
//! [`crate::lifecycle`], and every store says them in SQL. All times are the database's own.
//!
//! The verbs stand in traits by who calls them: [`RelayStore`] delivers, [`RelayRegistry`] knows who does,
//! [`AdminStore`] is for operators, [`SchemaStore`] for tables that Posthaste makes, [`ProducerStore`] for producers
//! without a transaction of their own.

mod admin;
mod claim;
mod dead_letter;
mod error;
mod halving;
mod purge;
mod reading;
mod registry;
mod relay;
mod schema;
mod scope;
mod settled;
mod stats;
mod trial;

use async_trait::async_trait;

use crate::enqueue::{EnqueueError, Enqueued, OutboxOptions};
use crate::message::Message;

pub use admin::{AdminStore, Filter, Record, ShardStatus};
pub use claim::{Claim, ClaimRequest, ClaimedMessage, RecoverRequest, Recovered, RefusedRow};
pub use dead_letter::{DeadLetter, Restored};
pub use error::{StoreError, StoreErrorKind};
pub use halving::{Halving, SearchDeadline};
pub use purge::{PurgeRequest, Purgeable, Purged};
pub use reading::Reading;
pub use registry::{FORGOTTEN_AFTER, LeadRequest, LeaderRole, Leadership, RelayHeartbeat, RelayRecord, RelayRegistry};
pub use relay::{RelayStore, StoreRequirements};
pub use schema::{Migration, SchemaStore};
pub use scope::{DeadHead, KeyOrdering, Scope, WorkerId};
pub use settled::{BusyRow, ExtendRequest, Extended, RefusedVerdict, Settled};
pub use stats::{GAUGE_BOUND, OutboxStats, TableGauges, TopicBacklog};

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
