//! A rehearsal before the first publication: every verdict is written to a row and undone. What the database would refuse
//! later, over and over, while the message is published again each time, is found before anything is published.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{Scope, WorkerId};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{MessageId, OutboxOptions, StoreError};
use posthaste_sql::table::Property;
use sqlx::{Executor, MySqlConnection};

use crate::claim::scope;
use crate::error::{by_number, number, store_error};
use crate::inbox_store::DUPLICATE;
use crate::retry::lost_against_another;
use crate::rows::{ids, millis};
use crate::statement::Value;
use crate::{BEGIN, MySqlStore};

/// Others may hold what a trigger or a foreign key asks for. A relay that starts does not wait for them.
const SET_LOCK_TIMEOUTS: &str = "set session innodb_lock_wait_timeout = 1, session lock_wait_timeout = 1";

/// What is undone after each step.
const MARK: &str = "savepoint posthaste_trial";
const UNDO: &str = "rollback to savepoint posthaste_trial";

/// As long as errors get that are written down.
const LONG_ERROR: usize = 4_000;

const DEAD: &str = "the verdict `dead`";

/// What the database refused, in words for the reader of the error.
struct Refused {
    what: &'static str,
    error: sqlx::Error,
    of_some_rows: bool,
}

fn while_doing(what: &'static str) -> impl FnOnce(sqlx::Error) -> Refused {
    move |error| Refused {
        what,
        error,
        of_some_rows: false,
    }
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
            // It is another relay's turn, which says nothing about the verdicts.
            Err(refused) if lost_against_another(&refused.error).is_some() => {
                tracing::debug!(error = %refused.error, "verdicts could not be tried");
            }
            Err(refused) => {
                let error = store_error(refused.error);
                let error = StoreError {
                    message: format!("the table does not take {}: {}", refused.what, error.message),
                    remedy: error.remedy.or(Some(REMEDY)),
                    ..error
                };
                return Err(match refused.what {
                    _ if refused.of_some_rows => error.of_some_rows(),
                    DEAD => error.of_deaths(),
                    _ => error,
                });
            }
            Ok(()) => {}
        }
        undone.map(drop).map_err(store_error)
    }

    async fn rehearse(&self, conn: &mut MySqlConnection, wanted: &Scope) -> Result<(), Refused> {
        let begun = while_doing("a transaction of the relay");
        let rows = self.begin_trial(conn, wanted).await.map_err(begun)?;
        let (first, others) = rows.split_at(rows.len().min(1));
        let Err(mut refused) = self.rehearse_on(conn, first).await else {
            return Ok(());
        };
        let kind = by_number(number(&refused.error).unwrap_or_default()).0;
        if kind.may_be_a_refusal() {
            let takes_any = self.takes_any(conn, wanted, others).await;
            refused.of_some_rows = takes_any.map_err(while_doing(refused.what))?;
        }
        Err(refused)
    }

    /// Whether the table takes every verdict on one of these rows, or on a new one.
    async fn takes_any(&self, conn: &mut MySqlConnection, wanted: &Scope, rows: &[MessageId]) -> sqlx::Result<bool> {
        for row in rows {
            conn.execute(UNDO).await?;
            if self.rehearse_on(conn, &[*row]).await.is_ok() {
                return Ok(true);
            }
        }
        conn.execute(UNDO).await?;
        let Some(row) = self.insert_one(conn, wanted).await else {
            return Ok(false);
        };
        Ok(self.rehearse_on(conn, &[row]).await.is_ok())
    }

    /// A row that is never there for anybody else, if the relay may insert and the table takes what a map knows of.
    async fn insert_one(&self, conn: &mut MySqlConnection, wanted: &Scope) -> Option<MessageId> {
        let options = OutboxOptions::new()
            .namespace(wanted.namespace.clone())
            .type_names(TypeNameRule::Any);
        match self
            .outbox(options)
            .enqueue(conn, self.map.trial_message(wanted)?)
            .await
        {
            Ok(enqueued) => Some(enqueued.id()),
            Err(error) => {
                tracing::debug!(%error, "no row could be inserted to try verdicts on");
                None
            }
        }
    }

    /// Tries every verdict on a row, or on none.
    async fn rehearse_on(&self, conn: &mut MySqlConnection, id: &[MessageId]) -> Result<(), Refused> {
        let (worker, token) = (WorkerId::new(), LeaseToken::new());
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
            // Last: a relay with a net for dead letters can do without the table's.
            (DEAD, Settlement::dead(on, token, &*long)),
        ] {
            conn.execute(MARK).await.map_err(while_doing(what))?;
            if let Some(leases) = &self.statements.leases {
                let lease = [
                    Value::ids(id, &self.map),
                    worker.as_uuid().to_string().into(),
                    self.map.fence(worker, token).into(),
                    millis(later).into(),
                ];
                let claimed = leases.lease.execute(conn, &lease).await;
                claimed.map_err(while_doing("a claim"))?;
            }
            match self.write_verdicts(conn, [&verdict]).await {
                // A message that was dead before, and is tried again, has left its copy there.
                Err(error) if number(&error) == Some(DUPLICATE) && what == DEAD => {}
                written => written.map_err(while_doing(what))?,
            }
            let undo = conn.execute(UNDO).await;
            undo.map_err(while_doing(what))?;
        }
        Ok(())
    }

    /// Locks rows for the trial that are free.
    async fn begin_trial(&self, conn: &mut MySqlConnection, wanted: &Scope) -> sqlx::Result<Vec<MessageId>> {
        conn.execute(SET_LOCK_TIMEOUTS).await?;
        conn.execute(BEGIN).await?;
        let found = self
            .statements
            .common
            .find_trial_row
            .fetch_all(conn, &scope(wanted, 0))
            .await?;
        let found = ids(&found, &self.map)?;
        if found.is_empty() {
            return Ok(found);
        }
        let wanted = [Value::ids(&found, &self.map)];
        ids(
            &self.statements.common.lock_trial_row.fetch_all(conn, &wanted).await?,
            &self.map,
        )
    }

    /// An id that no row has.
    fn no_row(&self) -> MessageId {
        if self.map.has(Property::GeneratedId) {
            MessageId::Number(-1)
        } else {
            uuid::Uuid::nil().into()
        }
    }
}

const REMEDY: &str = "grant what is missing, or fix the constraint, trigger or length that refuses it; nothing was \
                      published, and the trial left nothing behind";
