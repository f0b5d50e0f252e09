//! The ways in which producers write: everything that ends up in a committed transaction is to be delivered.

use std::time::Duration;

use posthaste_core::Message;
use posthaste_core::enqueue::EnqueueError;
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Postgres, Transaction};
use tokio::time::{Instant, sleep};

use crate::tables::Tables;
use crate::world::World;

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Library,
    /// As another language would.
    Function,
    Insert,
    /// Several at once.
    Copy,
    /// After one that was rolled back within the transaction.
    Savepoint,
    /// In a transaction that is prepared before it is committed.
    Prepared,
}

/// The events of a transaction that has several.
const COPIED: i64 = 4;

/// How long a prepared transaction may keep its producer from going on. The database may be restarted meanwhile.
const RESOLVE_TIMEOUT: Duration = Duration::from_mins(1);

impl Way {
    /// That of a producer's n-th event.
    pub fn of(tables: Tables, n: i64) -> Self {
        const LOG: [Way; 6] = [
            Way::Library,
            Way::Function,
            Way::Insert,
            Way::Copy,
            Way::Savepoint,
            Way::Prepared,
        ];
        match tables {
            Tables::Native if n % 2 == 1 => Self::Function,
            Tables::NativeLog { .. } => LOG[usize::try_from(n).unwrap_or_default() % LOG.len()],
            Tables::Native | Tables::Leased | Tables::BuiltinMap(_) => Self::Library,
        }
    }

    /// How many events one transaction has.
    pub fn events(self) -> i64 {
        if self == Self::Copy { COPIED } else { 1 }
    }

    /// Writes events, in their order.
    pub async fn write(self, world: &World, tx: &mut PgConnection, messages: Vec<Message>) -> sqlx::Result<()> {
        match self {
            Self::Library | Self::Prepared => match world.enqueue(tx, messages).await {
                Err(EnqueueError::Store(error)) => Err(sqlx::Error::Protocol(error.to_string())),
                taken => {
                    taken.expect("the tables have room for it");
                    Ok(())
                }
            },
            Self::Function => {
                let sql = format!(
                    "select from {}.enqueue(message_id => $1, topic => $2, key => $3, payload => convert_from($4, 'UTF8'))",
                    world.schema
                );
                each(tx, sql, &messages).await
            }
            Self::Insert => {
                let sql = format!(
                    "insert into {}.log (id, topic, ordering_key, payload) values ($1, $2, $3, $4)",
                    world.schema
                );
                each(tx, sql, &messages).await
            }
            Self::Copy => copy(tx, &world.schema, &messages).await,
            Self::Savepoint => {
                tx.execute("savepoint undone").await?;
                let undone = messages.iter().map(|message| Message {
                    id: posthaste_core::MessageId::new(),
                    ..message.clone()
                });
                Box::pin(Self::Library.write(world, tx, undone.collect())).await?;
                tx.execute("rollback to savepoint undone").await?;
                Box::pin(Self::Library.write(world, tx, messages)).await
            }
        }
    }

    /// Ends a transaction.
    pub async fn end(self, world: &World, mut tx: Transaction<'_, Postgres>, commit: bool) -> sqlx::Result<()> {
        if self == Self::Prepared {
            let name = uuid::Uuid::new_v4();
            let prepare = format!("prepare transaction '{name}'");
            let prepared = tx.execute(AssertSqlSafe(prepare)).await;
            // It is the transaction of no connection any more.
            drop(tx.rollback().await);
            sleep(Duration::from_millis(rand::random_range(0..40))).await;
            // Whether it was prepared is not known after an error.
            return resolve(world, name, commit).await.and(prepared.map(drop));
        }
        if commit { tx.commit().await } else { tx.rollback().await }
    }
}

async fn each(tx: &mut PgConnection, sql: String, messages: &[Message]) -> sqlx::Result<()> {
    for message in messages {
        sqlx::query(AssertSqlSafe(sql.as_str()))
            .persistent(false)
            .bind(message.id.uuid())
            .bind(message.topic.as_str())
            .bind(message.ordering_key.as_deref())
            .bind(message.payload.to_vec())
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

async fn copy(tx: &mut PgConnection, schema: &str, messages: &[Message]) -> sqlx::Result<()> {
    let copy = format!("copy {schema}.log (id, topic, ordering_key, payload) from stdin");
    let mut rows = tx.copy_in_raw(&copy).await?;
    for message in messages {
        // There is nothing in it that COPY or `bytea` would take for something else.
        let payload = String::from_utf8_lossy(&message.payload);
        let key = message.ordering_key.as_deref().expect("every event has a key");
        let id = message.id.uuid().expect("it is new");
        let row = format!("{id}\t{}\t{key}\t{payload}\n", message.topic);
        rows.send(row.as_bytes()).await?;
    }
    rows.finish().await.map(drop)
}

/// Commits or rolls back a prepared transaction, if there is one, however often the database has to be asked.
async fn resolve(world: &World, name: uuid::Uuid, commit: bool) -> sqlx::Result<()> {
    const UNKNOWN: &str = "42704";
    let verb = if commit { "commit" } else { "rollback" };
    let sql = format!("{verb} prepared '{name}'");
    let asked = Instant::now();
    loop {
        let Err(error) = world.pool.execute(AssertSqlSafe(sql.as_str())).await else {
            return Ok(());
        };
        let code = error.as_database_error().and_then(DatabaseError::code);
        if code.is_some_and(|code| code == UNKNOWN) || asked.elapsed() > RESOLVE_TIMEOUT {
            return Err(error);
        }
        sleep(Duration::from_millis(50)).await;
    }
}
