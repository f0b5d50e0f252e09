//! Who reads which shard of Posthaste's own log: a lease per shard, with an epoch that fences whoever had it before.
//!
//! An instance says that it is there by an advisory lock, which the server gives up when its connection ends. From these and
//! the leases every instance works out its share. What it has too many of it hands over: it claims no more of them, waits
//! for the answers, stores their state and gives them up. A dead instance's shards are taken when their leases are over.
//! Taking a shard raises its epoch, and everything that is written of a shard is written under the epoch with which it was
//! taken, so one who lost it and does not know cannot write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::{ShardStatus, StoreErrorKind};
use posthaste_sql::log::{ReaderState, Seat, plan_seats};
use posthaste_sql::table::Identifier;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::error::store_error;
use crate::rows::millis;

/// How the files write the schema.
const SCHEMA_IN_FILES: &str = "\"posthaste\"";

/// The statements over the table of shards.
#[derive(Clone, Debug)]
struct ShardStatements {
    register: Arc<str>,
    look: Arc<str>,
    take: Arc<str>,
    renew: Arc<str>,
    release: Arc<str>,
    checkpoint: Arc<str>,
    fence: Arc<str>,
    status: Arc<str>,
}

impl ShardStatements {
    fn finish(schema: &Identifier) -> Self {
        let finish = |file: &str| file.replace(SCHEMA_IN_FILES, &schema.quoted('"')).into();
        Self {
            register: finish(include_str!("../../queries/log/shards/register.sql")),
            look: finish(include_str!("../../queries/log/shards/look.sql")),
            take: finish(include_str!("../../queries/log/shards/take.sql")),
            renew: finish(include_str!("../../queries/log/shards/renew.sql")),
            release: finish(include_str!("../../queries/log/shards/release.sql")),
            checkpoint: finish(include_str!("../../queries/log/shards/checkpoint.sql")),
            fence: finish(include_str!("../../queries/log/shards/fence.sql")),
            status: finish(include_str!("../../queries/log/shards/status.sql")),
        }
    }
}

/// A shard that was taken, and what its last reader left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenShard {
    /// Its number.
    pub shard: i32,
    /// What the last reader left; from the beginning if there was none.
    pub state: ReaderState,
    /// The transaction that took it.
    pub written_by: String,
}

/// What a look at the seats brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Shards that are this instance's from now on.
    pub taken: Vec<TakenShard>,
    /// Shards that were taken by another instance: what was known of them is void.
    pub lost: Vec<i32>,
    /// Shards that were handed over.
    pub released: Vec<i32>,
}

/// How far one shard is settled.
#[derive(Clone, Debug)]
pub struct ShardCheckpoint {
    /// The shard.
    pub shard: i32,
    /// The number up to which everything is settled.
    pub position: i64,
    /// What a successor has to know.
    pub state: ReaderState,
}

/// The seats of one instance. All calls are made on one connection, whose life is that of the instance.
#[derive(Debug)]
pub struct ShardSeats {
    statements: ShardStatements,
    table: String,
    instance: Uuid,
    /// Epochs of the shards that are held.
    held: BTreeMap<i32, i64>,
    /// Those of them that are to be handed over.
    leaving: BTreeSet<i32>,
}

impl ShardSeats {
    /// The seats of a new instance at the log of a schema; none yet.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`] if the name cannot be that of a schema.
    pub fn new(schema: &str) -> Result<Self, StoreError> {
        let schema = Identifier::new(schema).map_err(|error| StoreError::unsupported(error.to_string(), None))?;
        Ok(Self {
            statements: ShardStatements::finish(&schema),
            table: format!("{}.log_shards", schema.quoted('"')),
            instance: Uuid::new_v4(),
            held: BTreeMap::new(),
            leaving: BTreeSet::new(),
        })
    }

    /// The instance, as the table of shards names it.
    pub fn instance(&self) -> Uuid {
        self.instance
    }

    /// The shards that may be claimed from.
    pub fn held(&self) -> impl Iterator<Item = i32> + '_ {
        self.held.keys().copied().filter(|shard| !self.leaving.contains(shard))
    }

    /// The shards that are to be handed over, once nothing of them is in flight.
    pub fn leaving(&self) -> impl Iterator<Item = i32> + '_ {
        self.leaving.iter().copied()
    }

    /// Says that this instance is there, for as long as the connection lives.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn register(&mut self, connection: &mut PgConnection) -> Result<(), StoreError> {
        loop {
            let registered: bool = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statements.register)))
                .bind(&self.table)
                .bind(self.instance.to_string())
                .fetch_one(&mut *connection)
                .await
                .map_err(store_error)?;
            if registered {
                return Ok(());
            }
            // Another one has the same first digits, by which they know each other.
            self.instance = Uuid::new_v4();
        }
    }

    /// Renews what is held, hands over what is too much and not `busy`, and takes what is free, up to this instance's share.
    /// To be called a few times within the lease.
    ///
    /// # Errors
    /// Those of the database. What is held stays so until its leases are over.
    pub async fn balance(
        &mut self,
        connection: &mut PgConnection,
        lease: Duration,
        busy: impl Fn(i32) -> bool,
    ) -> Result<Balance, StoreError> {
        let lost = self.renew(connection, lease).await?;
        let (seats, instances) = self.look(connection).await?;
        let plan = plan_seats(&seats, &instances, key(self.instance));
        self.leaving = plan.hand_over.into_iter().collect();
        let idle: Vec<i32> = self.leaving.iter().copied().filter(|shard| !busy(*shard)).collect();
        self.release(connection, &idle).await?;
        let taken = match plan.take {
            0 => Vec::new(),
            count => self.take(connection, count, lease).await?,
        };
        Ok(Balance {
            taken,
            lost,
            released: idle,
        })
    }

    async fn look(&self, connection: &mut PgConnection) -> Result<(Vec<Seat<u32>>, Vec<u32>), StoreError> {
        let rows = sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.look)))
            .bind(&self.table)
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        let (mut seats, mut instances) = (Vec::new(), Vec::new());
        for row in &rows {
            let owner: Option<Uuid> = get(row, "owner")?;
            seats.push(Seat {
                shard: get(row, "shard")?,
                owner: owner.map(key),
            });
            let there: Vec<String> = get(row, "instances")?;
            instances = there
                .iter()
                .filter_map(|digits| u32::from_str_radix(digits, 16).ok())
                .collect();
        }
        Ok((seats, instances))
    }

    async fn take(
        &mut self,
        connection: &mut PgConnection,
        count: usize,
        lease: Duration,
    ) -> Result<Vec<TakenShard>, StoreError> {
        let rows = sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.take)))
            .bind(self.instance)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(millis(lease))
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        let mut taken = Vec::with_capacity(rows.len());
        for row in &rows {
            let (shard, epoch): (i32, i64) = (get(row, "shard")?, get(row, "epoch")?);
            let (state, position): (String, i64) = (get(row, "state")?, get(row, "position")?);
            let state = match state.as_str() {
                "" => ReaderState::at(position),
                state => state.parse().map_err(|error| unreadable(shard, &error))?,
            };
            self.held.insert(shard, epoch);
            let written_by = get(row, "written_by")?;
            taken.push(TakenShard {
                shard,
                state,
                written_by,
            });
        }
        Ok(taken)
    }

    /// Prolongs the leases of what is held; says what was lost.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn renew(&mut self, connection: &mut PgConnection, lease: Duration) -> Result<Vec<i32>, StoreError> {
        let (shards, epochs): (Vec<i32>, Vec<i64>) = self.held.iter().unzip();
        if shards.is_empty() {
            return Ok(Vec::new());
        }
        let kept: Vec<i32> = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statements.renew)))
            .bind(&shards)
            .bind(&epochs)
            .bind(millis(lease))
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        Ok(self.forget_all_but(&shards, &kept))
    }

    /// Gives shards up, so that another instance can take them at once. Their last state must be stored before.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn release(&mut self, connection: &mut PgConnection, shards: &[i32]) -> Result<(), StoreError> {
        let held = shards.iter().filter_map(|shard| Some((*shard, *self.held.get(shard)?)));
        let (shards, epochs): (Vec<i32>, Vec<i64>) = held.unzip();
        if shards.is_empty() {
            return Ok(());
        }
        sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.release)))
            .bind(&shards)
            .bind(&epochs)
            .execute(connection)
            .await
            .map_err(store_error)?;
        self.forget_all_but(&shards, &[]);
        Ok(())
    }

    /// Writes down how far shards are settled; says which of them were lost to another instance.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn checkpoint(
        &mut self,
        connection: &mut PgConnection,
        checkpoints: &[ShardCheckpoint],
    ) -> Result<Vec<i32>, StoreError> {
        let shards: Vec<i32> = checkpoints.iter().map(|checkpoint| checkpoint.shard).collect();
        // One that is not held has no epoch that a shard could have.
        let epoch = |shard: &i32| self.held.get(shard).copied().unwrap_or(-1);
        let written: Vec<i32> = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statements.checkpoint)))
            .bind(&shards)
            .bind(shards.iter().map(epoch).collect::<Vec<_>>())
            .bind(
                checkpoints
                    .iter()
                    .map(|checkpoint| checkpoint.position)
                    .collect::<Vec<_>>(),
            )
            .bind(
                checkpoints
                    .iter()
                    .map(|checkpoint| checkpoint.state.hi)
                    .collect::<Vec<_>>(),
            )
            .bind(
                checkpoints
                    .iter()
                    .map(|checkpoint| checkpoint.state.to_string())
                    .collect::<Vec<_>>(),
            )
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        Ok(self.forget_all_but(&shards, &written))
    }

    /// Whether a shard is still this instance's, and stays so until the transaction ends. For everything else that is
    /// written of a shard, in that transaction.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn fence(&self, transaction: &mut PgConnection, shard: i32) -> Result<bool, StoreError> {
        let Some(epoch) = self.held.get(&shard) else {
            return Ok(false);
        };
        let held: Option<i32> = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statements.fence)))
            .bind(shard)
            .bind(epoch)
            .fetch_optional(transaction)
            .await
            .map_err(store_error)?;
        Ok(held.is_some())
    }

    fn forget_all_but(&mut self, shards: &[i32], kept: &[i32]) -> Vec<i32> {
        let lost: Vec<i32> = shards.iter().copied().filter(|shard| !kept.contains(shard)).collect();
        for shard in &lost {
            self.held.remove(shard);
            self.leaving.remove(shard);
        }
        lost
    }
}

/// The shards of a schema's log as an operator sees them.
pub(super) async fn status(connection: &mut PgConnection, schema: &Identifier) -> Result<Vec<ShardStatus>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(ShardStatements::finish(schema).status))
        .bind(schema.as_str())
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let shard = |row: &PgRow| {
        Ok(ShardStatus {
            shard: get(row, "shard")?,
            owner: get(row, "owner")?,
            epoch: get(row, "epoch")?,
            lag: get::<i64>(row, "lag")?.cast_unsigned(),
            position: get(row, "position")?,
            leased_until: get(row, "leased_until")?,
        })
    };
    rows.iter().map(shard).collect()
}

/// The first digits of an instance, which is all that a lock can hold of it.
fn key(instance: Uuid) -> u32 {
    let (first, ..) = instance.as_fields();
    first
}

fn get<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(name).map_err(store_error)
}

fn unreadable(shard: i32, error: &posthaste_sql::log::InvalidReaderState) -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message: format!("the state of shard {shard} cannot be read: {error}"),
        remedy: Some("set its state to '' and its position to the number from which on it is to be read again"),
        source: None,
    }
}
