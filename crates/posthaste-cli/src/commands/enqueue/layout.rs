//! A queue that nobody serves, because its outbox is kept in the log.

use std::fmt;

use anyhow::bail;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::{ShardStatus, Store, StoreErrorKind};
use posthaste_core::{Message, OutboxOptions, StoreError};
use posthaste_postgres::MoveProgress;
use posthaste_sql::table::Layout;

use crate::config::Database;
use crate::wiring;

/// Relays that were not heard for so long do not serve the queue.
const SILENCE: f64 = 15.0;

/// What is written to the queue would wait beside the log, which is the one that is used.
#[derive(Clone, Debug)]
pub(super) struct UnservedQueue {
    database: String,
    is_read: bool,
}

impl UnservedQueue {
    /// Nothing if the queue is all that there is, if it is served, or if what is written to it is moved to the log.
    pub(super) async fn look(store: &dyn Store, database: &Database) -> anyhow::Result<Option<Self>> {
        let serves_queue = database.layout == Layout::Queue && database.table_map().is_none();
        if !serves_queue || !store.applied().await?.contains(&wiring::FIRST_LOG_VERSION) {
            return Ok(None);
        }
        let log = wiring::any_native_log(database).await?;
        let found = async {
            match log.move_progress().await? {
                MoveProgress::NotBegun => log.shards().await,
                _ => Ok(Vec::new()),
            }
        };
        let shards = match found.await {
            // A producer of the queue needs no rights on the log, and tables of an earlier version need no reader.
            Err(error) if matches!(error.kind, StoreErrorKind::Access | StoreErrorKind::SchemaMissing) => {
                return Ok(None);
            }
            shards => shards?,
        };
        let is_read = shards.iter().any(|shard| shard.owner.is_some());
        if !shards.iter().any(is_used) || (!is_read && has_relays(store).await?) {
            return Ok(None);
        }
        Ok(Some(Self {
            database: database.url().to_string(),
            is_read,
        }))
    }

    /// Other namespaces stay in the queue.
    pub(super) fn refuse(&self, options: &OutboxOptions, message: &Message) -> anyhow::Result<()> {
        let namespace = message.namespace.as_deref().unwrap_or(&options.namespace);
        if namespace == DEFAULT_NAMESPACE {
            bail!("{}: {self}", self.database);
        }
        Ok(())
    }
}

/// Whether messages are or were in it, or a relay waits for some.
fn is_used(shard: &ShardStatus) -> bool {
    shard.owner.is_some() || shard.lag > 0 || shard.position > 0
}

/// Relays that are alive while nobody reads the log serve the queue.
async fn has_relays(store: &dyn Store) -> Result<bool, StoreError> {
    let Some(registry) = store.registry() else {
        return Ok(false);
    };
    let relays = registry.relays(DEFAULT_NAMESPACE).await?;
    Ok(relays.iter().any(|relay| relay.silent_seconds < SILENCE))
}

impl fmt::Display for UnservedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this outbox is kept in the log, and a message that is written to the queue beside it would not be delivered; set \
             database.layout = \"log\"",
        )?;
        if self.is_read {
            return Ok(());
        }
        f.write_str(", or, if the log is not used any more, start a relay of the queue first")
    }
}
