//! Messages that are in Posthaste's own log while the settings speak of the queue.

use std::fmt;

use anyhow::bail;
use posthaste_core::StoreError;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::{OutboxStats, Store, StoreErrorKind};
use posthaste_postgres::MoveProgress;
use posthaste_sql::table::Layout;

use crate::config::Database;
use crate::{terminal, wiring};

/// Why the queue is not where messages are: they were moved to the log, or are there.
#[derive(Clone, Debug)]
pub struct Unserved {
    progress: MoveProgress,
    /// What is in the log, as far as it could be counted.
    pub log: OutboxStats,
    /// Why it could not.
    pub uncounted: Option<String>,
}

const UNSERVED: &str = "which a relay of the queue does not serve; set database.layout = \"log\"";

impl Unserved {
    /// Nothing if the queue is all that there is in this namespace, or not what is served.
    pub async fn look(store: &dyn Store, database: &Database, namespace: &str) -> anyhow::Result<Option<Self>> {
        let serves_queue = database.layout == Layout::Queue && database.table_map().is_none();
        let is_default = namespace == DEFAULT_NAMESPACE;
        if !serves_queue || !is_default || !store.applied().await?.contains(&wiring::FIRST_LOG_VERSION) {
            return Ok(None);
        }
        let log = wiring::any_native_log(database).await?;
        let found = async {
            let progress = log.move_progress().await?;
            let (log, uncounted) = match log.stats().await {
                // What was moved is not where it was, whether it can be counted or not: by an earlier version, or for a role that
                // has rights on the queue alone.
                Err(error) if progress != MoveProgress::NotBegun && is_out_of_sight(&error) => {
                    (OutboxStats::default(), Some(error.message))
                }
                log => (log?, None),
            };
            Ok(Self {
                progress,
                log,
                uncounted,
            })
        };
        match found.await {
            // Whoever may not look at the log has none to serve.
            Err(StoreError {
                kind: StoreErrorKind::Access,
                ..
            }) => Ok(None),
            Ok(found) if found.progress == MoveProgress::NotBegun && found.is_empty() => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// A relay of the queue would find nothing to do, and look healthy. Dead ones alone keep it from nothing.
    pub fn keeps_relays_away(&self) -> bool {
        self.progress != MoveProgress::NotBegun || self.log.undelivered() > 0
    }

    /// Nothing that is in the queue can be meant any more.
    pub fn refuse_if_moved(&self, database: &Database) -> anyhow::Result<()> {
        if self.progress == MoveProgress::Done {
            bail!("{}: {self}", database.url());
        }
        Ok(())
    }

    /// Says so beside what a command prints.
    pub fn note(&self) {
        terminal::note(self);
    }

    fn is_empty(&self) -> bool {
        is_empty(&self.log)
    }
}

fn is_out_of_sight(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::SchemaMissing | StoreErrorKind::Access)
}

/// Whether there is nothing that anybody waits for.
pub fn is_empty(stats: &OutboxStats) -> bool {
    stats.undelivered() + stats.dead == 0
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = InLog(&self.log);
        match (self.progress, self.is_empty()) {
            (MoveProgress::Done, true) => write!(f, "this outbox was moved to the log, {UNSERVED}"),
            (MoveProgress::Done, false) => write!(f, "this outbox was moved to the log: {there}, {UNSERVED}"),
            (MoveProgress::Begun, true) => {
                let may_be = if self.uncounted.is_some() {
                    ", if nothing is in the log,"
                } else {
                    ""
                };
                write!(
                    f,
                    "a move of this outbox to the log was begun, and relays of the queue claim nothing until it is through; run \
                     `posthaste log move` again, or{may_be} take it back with `posthaste log move --abort`"
                )
            }
            (MoveProgress::Begun, false) => write!(
                f,
                "a move of this outbox to the log was begun, and relays of the queue claim nothing until it is through: {there} \
                 already; run `posthaste log move` again"
            ),
            (MoveProgress::NotBegun, _) => write!(f, "{there}, {UNSERVED}"),
        }
    }
}

/// How many messages are there.
pub struct InLog<'a>(pub &'a OutboxStats);

impl fmt::Display for InLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = match self.0.undelivered() {
            0 => None,
            1 => Some("1 message waits".to_owned()),
            more => Some(format!("{more} messages wait")),
        };
        let dead = match self.0.dead {
            0 => None,
            1 => Some("1 dead message is".to_owned()),
            more => Some(format!("{more} dead messages are")),
        };
        let both: Vec<_> = messages.into_iter().chain(dead).collect();
        write!(f, "{} in the log", both.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_log_is_counted_and_a_move_taken_back_only_while_nothing_is() {
        let said = |progress, pending, dead| {
            let log = OutboxStats {
                pending,
                dead,
                ..OutboxStats::default()
            };
            Unserved {
                progress,
                log,
                uncounted: None,
            }
            .to_string()
        };
        assert!(said(MoveProgress::NotBegun, 1, 0).starts_with("1 message waits in the log, which"));
        assert!(said(MoveProgress::NotBegun, 0, 2).starts_with("2 dead messages are in the log, which"));
        let moved = said(MoveProgress::Done, 2, 1);
        assert!(
            moved.starts_with(
                "this outbox was moved to the log: 2 messages wait and 1 dead message is in the log, which"
            ),
            "{moved}"
        );
        assert!(said(MoveProgress::Begun, 0, 0).contains("--abort"));
        let cut_off = said(MoveProgress::Begun, 5_000, 0);
        assert!(
            cut_off.contains("5000 messages wait in the log already") && !cut_off.contains("--abort"),
            "{cut_off}"
        );
    }
}
