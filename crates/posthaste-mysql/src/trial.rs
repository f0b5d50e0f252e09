//! A rehearsal before the first publication: every verdict is written to a row and undone. What the database would refuse
//! later, over and over, while the message is published again each time, is found before anything is published.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{Scope, WorkerId};
use posthaste_core::{MessageId, StoreError};
use sqlx::{Executor, MySqlConnection};

use crate::claim::scope;
use crate::error::store_error;
use crate::inbox_store::DUPLICATE;
use crate::retry::lost_against_another;
use crate::rows::{ids, millis};
use crate::statement::Value;
use crate::{BEGIN, MySqlStore};

/// Others may hold what a trigger or a foreign key asks for. A relay that starts does not wait for them.
const PATIENCE: &str = "set session innodb_lock_wait_timeout = 1";

/// As long as errors get that are written down.
const LONG_ERROR: usize = 4_000;

/// What the database refused, in words for whoever reads the error.
struct Refused {
    what: &'static str,
    error: sqlx::Error,
}

fn while_doing(what: &'static str) -> impl FnOnce(sqlx::Error) -> Refused {
    move |error| Refused { what, error }
}

impl MySqlStore {
    /// Tries every verdict on a pending row of the scope, or on none where there is none: then rights are found missing
    /// all the same.
    pub(crate) async fn try_every_verdict(&self, wanted: &Scope) -> Result<(), StoreError> {
        let mut conn = self.pool.acquire().await.map_err(store_error)?;
        // What is set for the session must not reach the pool.
        conn.close_on_drop();
        let tried = self.rehearse(&mut conn, wanted).await;
        // Whatever came of it, nothing stays.
        let undone = conn.execute("rollback").await;
        match tried {
            // It is somebody else's turn, which says nothing about the verdicts.
            Err(refused) if lost_against_another(&refused.error).is_some() => {
                tracing::debug!(error = %refused.error, "verdicts could not be tried");
            }
            Err(refused) => {
                let error = store_error(refused.error);
                return Err(StoreError {
                    message: format!("the table does not take {}: {}", refused.what, error.message),
                    remedy: error.remedy.or(Some(REMEDY)),
                    ..error
                });
            }
            Ok(()) => {}
        }
        undone.map(drop).map_err(store_error)
    }

    async fn rehearse(&self, conn: &mut MySqlConnection, wanted: &Scope) -> Result<(), Refused> {
        let begun = while_doing("a transaction of the relay");
        let row = self.begin_trial(conn, wanted).await.map_err(begun)?;
        let (worker, token) = (WorkerId::new(), LeaseToken::new());
        let leased = !self.statements.lease.is_absent();
        let id = row.as_slice();
        let settle = if leased {
            &self.statements.settle
        } else {
            &self.statements.settle_locked
        };
        let long = "e".repeat(LONG_ERROR);
        let later = Duration::from_secs(30);
        // A verdict on no row still asks for the rights.
        let on = id.first().copied().unwrap_or_else(|| self.no_row());
        let postponed = Settlement {
            verdict: Verdict::Postponed {
                delay: later,
                error: long.clone(),
            },
            ..Settlement::released(on, token)
        };
        for (what, verdict) in [
            ("the verdict `delivered`", Settlement::delivered(on, token)),
            ("the verdict `retry`", Settlement::retry(on, token, later, &*long)),
            ("the verdict `postponed`", postponed),
            ("the verdict `released`", Settlement::released(on, token)),
            ("the verdict `dead`", Settlement::dead(on, token, &*long)),
        ] {
            conn.execute("savepoint posthaste_trial")
                .await
                .map_err(while_doing(what))?;
            if leased {
                let lease = [
                    Value::ids(id, &self.map),
                    worker.as_uuid().to_string().into(),
                    self.map.fence(worker, token).into(),
                    millis(later).into(),
                ];
                let claimed = self.statements.lease.execute(conn, &lease).await;
                claimed.map_err(while_doing("a claim"))?;
            }
            let written = self.write_verdicts(conn, settle, self.verdicts([&verdict])).await;
            match written {
                // A message that was dead before, and is tried again, has left its copy there.
                Err(error) if crate::error::number(&error) == Some(DUPLICATE) && what.contains("dead") => {}
                written => written.map_err(while_doing(what))?,
            }
            let undo = conn.execute("rollback to savepoint posthaste_trial").await;
            undo.map_err(while_doing(what))?;
        }
        Ok(())
    }

    /// Locks a row for the trial, if there is one that nobody else has.
    async fn begin_trial(&self, conn: &mut MySqlConnection, wanted: &Scope) -> sqlx::Result<Vec<MessageId>> {
        conn.execute(PATIENCE).await?;
        conn.execute(BEGIN).await?;
        let found = self
            .statements
            .find_trial_row
            .fetch_all(conn, &scope(wanted, 0))
            .await?;
        let found = ids(&found, &self.map)?;
        if found.is_empty() {
            return Ok(found);
        }
        let wanted = [Value::ids(&found, &self.map)];
        ids(
            &self.statements.lock_trial_row.fetch_all(conn, &wanted).await?,
            &self.map,
        )
    }

    /// An id that no row has.
    fn no_row(&self) -> MessageId {
        if self.map.has("generated_id") {
            MessageId::Number(-1)
        } else {
            uuid::Uuid::nil().into()
        }
    }
}

const REMEDY: &str = "grant what is missing, or mend the constraint, trigger or length that refuses it; nothing was \
                      published, and the trial left nothing behind";
