//! Who reads which shard of Posthaste's own log: a seat for each, with a lease and an epoch that fences whoever had it before.
//!
//! An instance says that it is there by an advisory lock, which the server gives up when its connection ends. From these and
//! the seats every instance works out its share. What it has too many of it hands over; what nobody has, or one that is gone,
//! it takes, which raises the epoch. A seat says who is to read a shard; the one who does has the lock of its reader
//! besides, so that no two ever do, whatever they believe of their seats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::StoreError;
use posthaste_core::store::ShardStatus;
use posthaste_sql::log::{Seat, plan_seats};
use posthaste_sql::table::Identifier;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row, Transaction};
use uuid::Uuid;

use super::error::LogResult;
use crate::error::store_error;
use crate::pooling;
use crate::rows::millis;

/// How long the server takes to miss a connection that was closed, at most.
const MISSED_WITHIN: Duration = Duration::from_secs(1);

/// How a look at all shards begins. The planner expects many of them, and would have the server compile for seconds what then takes
/// milliseconds.
const BEGIN_LOOK: &str = "begin isolation level read committed; set local lock_timeout = '1s'; set local jit = off;
    set local idle_in_transaction_session_timeout = '5s'";

/// How the files write the schema.
pub(super) const SCHEMA_IN_FILES: &str = "\"posthaste\"";

/// The statements over the table of shards.
#[derive(Clone, Debug)]
struct SeatStatements {
    register: Arc<str>,
    look: Arc<str>,
    take: Arc<str>,
    renew: Arc<str>,
    release: Arc<str>,
    status: Arc<str>,
    hold_ups: Arc<str>,
    set_back: Arc<str>,
}

impl SeatStatements {
    fn finish(schema: &Identifier) -> Self {
        let finish = |file: &str| file.replace(SCHEMA_IN_FILES, &schema.quoted('"')).into();
        Self {
            register: finish(include_str!("../../queries/log/shards/register.sql")),
            look: finish(include_str!("../../queries/log/shards/look.sql")),
            take: finish(include_str!("../../queries/log/shards/take.sql")),
            renew: finish(include_str!("../../queries/log/shards/renew.sql")),
            release: finish(include_str!("../../queries/log/shards/release.sql")),
            status: finish(include_str!("../../queries/log/shards/status.sql")),
            hold_ups: finish(include_str!("../../queries/log/shards/hold_ups.sql")),
            set_back: finish(include_str!("../../queries/log/shards/set_back.sql")),
        }
    }
}

/// What is to be done about seats.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Seats that another instance has taken.
    pub(super) lost: Vec<i32>,
    /// How many of each generation may be taken.
    take: Vec<(i32, usize)>,
    /// Whether it has less than its share, also where none is free.
    pub(super) lacks: bool,
    /// Whether other instances are there.
    pub(super) has_company: bool,
    /// Whether there are shards that wait for those before to be read to their end.
    pub(super) waits: bool,
}

/// The seats of one instance. All calls are made on one connection, whose life is that of the instance.
#[derive(Debug)]
pub(super) struct Seats {
    statements: SeatStatements,
    table: String,
    instance: Uuid,
    /// Epochs of the shards that are held.
    held: BTreeMap<i32, i64>,
    /// Those of them that are to be handed over.
    leaving: BTreeSet<i32>,
}

impl Seats {
    /// The seats of a new instance at the log of a schema; none yet.
    pub(super) fn new(schema: &Identifier) -> Self {
        Self {
            statements: SeatStatements::finish(schema),
            table: format!("{}.log_shards", schema.quoted('"')),
            instance: Uuid::nil(),
            held: BTreeMap::new(),
            leaving: BTreeSet::new(),
        }
    }

    /// The shards that it has seats for, with their epochs.
    pub(super) fn held(&self) -> impl Iterator<Item = (i32, i64)> {
        self.held.iter().map(|(shard, epoch)| (*shard, *epoch))
    }

    /// Whether a shard is to be handed over, once nothing of it is in flight.
    pub(super) fn is_leaving(&self, shard: i32) -> bool {
        self.leaving.contains(&shard)
    }

    /// Says that this instance is there, for as long as the connection lives.
    pub(super) async fn register(&mut self, connection: &mut PgConnection, instance: Uuid) -> LogResult<()> {
        let begun = Instant::now();
        self.instance = instance;
        loop {
            let registered: bool = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statements.register)))
                .bind(&self.table)
                .bind(self.instance.to_string())
                .fetch_one(&mut *connection)
                .await?;
            if registered {
                return Ok(());
            }
            // Its earlier connection is not missed yet. Or another one has the same last digits, by which they know each
            // other: then it has another name, under which it renews what it holds.
            if begun.elapsed() < MISSED_WITHIN {
                tokio::time::sleep(Duration::from_millis(20)).await;
            } else {
                self.instance = Uuid::new_v4();
            }
        }
    }

    /// What is to be taken and what to be handed over.
    pub(super) async fn plan(&mut self, connection: &mut PgConnection) -> LogResult<Plan> {
        let rows = sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.look)))
            .bind(&self.table)
            .fetch_all(connection)
            .await?;
        let (mut instances, mut lost) = (Vec::new(), Vec::new());
        let mut wanted = Plan::default();
        // Rows are written to the shards of one generation, so each of them is spread by itself.
        let mut generations: BTreeMap<i32, Vec<Seat<u32>>> = BTreeMap::new();
        for row in &rows {
            let (shard, epoch): (i32, i64) = (row.try_get("shard")?, row.try_get("epoch")?);
            if self.held.get(&shard).is_some_and(|held| *held != epoch) {
                lost.push(shard);
            }
            let owner: Option<Uuid> = row.try_get("owner")?;
            generations.entry(row.try_get("generation")?).or_default().push(Seat {
                shard,
                owner: owner.map(key),
            });
            wanted.waits = row.try_get::<i64, _>("shards")? > i64::try_from(rows.len()).unwrap_or(i64::MAX);
            let there: Vec<String> = row.try_get("instances")?;
            instances = there
                .iter()
                .filter_map(|digits| u32::from_str_radix(digits, 16).ok())
                .collect();
        }
        self.forget(&lost);
        self.leaving.clear();
        wanted.lost = lost;
        wanted.has_company = instances.len() > 1;
        for (generation, seats) in generations {
            let plan = plan_seats(&seats, &instances, key(self.instance));
            let held = |shard: &i32| self.held.contains_key(shard);
            self.leaving.extend(plan.hand_over.into_iter().filter(held));
            wanted.lacks |= plan.lacking > 0;
            wanted.take.push((generation, plan.take));
        }
        Ok(wanted)
    }

    /// Takes what is free, up to this instance's share.
    pub(super) async fn take(&mut self, connection: &mut PgConnection, plan: &Plan, lease: Duration) -> LogResult<()> {
        for (generation, count) in plan.take.iter().filter(|(_, count)| *count > 0) {
            let rows = sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.take)))
                .bind(self.instance)
                .bind(i64::try_from(*count).unwrap_or(i64::MAX))
                .bind(millis(lease))
                .bind(generation)
                .bind(&self.table)
                .fetch_all(&mut *connection)
                .await?;
            for row in &rows {
                self.held.insert(row.try_get("shard")?, row.try_get("epoch")?);
            }
        }
        Ok(())
    }

    /// Prolongs the leases of what is held; says what was lost.
    pub(super) async fn renew(&mut self, connection: &mut PgConnection, lease: Duration) -> LogResult<Vec<i32>> {
        let (shards, epochs): (Vec<i32>, Vec<i64>) = self.held.iter().unzip();
        if shards.is_empty() {
            return Ok(Vec::new());
        }
        let kept: Vec<i32> = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statements.renew)))
            .bind(&shards)
            .bind(&epochs)
            .bind(millis(lease))
            .bind(self.instance)
            .fetch_all(connection)
            .await?;
        let lost: Vec<i32> = shards.into_iter().filter(|shard| !kept.contains(shard)).collect();
        self.forget(&lost);
        Ok(lost)
    }

    /// Gives shards up, so that another instance can take them at once. Nobody reads them any more.
    pub(super) async fn release(&mut self, connection: &mut PgConnection, shards: &[i32]) -> LogResult<()> {
        let held = shards.iter().filter_map(|shard| Some((*shard, *self.held.get(shard)?)));
        let (shards, epochs): (Vec<i32>, Vec<i64>) = held.unzip();
        if shards.is_empty() {
            return Ok(());
        }
        sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.release)))
            .bind(&shards)
            .bind(&epochs)
            .execute(connection)
            .await?;
        self.forget(&shards);
        Ok(())
    }

    fn forget(&mut self, shards: &[i32]) {
        for shard in shards {
            self.held.remove(shard);
            self.leaving.remove(shard);
        }
    }
}

/// A transaction for a look at all shards.
pub(super) async fn begin_look(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    pooling::begin(pool, BEGIN_LOOK).await.map_err(store_error)
}

/// The shards of a schema's log as an operator sees them.
pub(super) async fn status(connection: &mut PgConnection, schema: &Identifier) -> Result<Vec<ShardStatus>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(SeatStatements::finish(schema).status))
        // A queue's pool may be that of a pooler.
        .persistent(false)
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
            generation: get(row, "generation")?,
            readable: get(row, "readable")?,
            leased_until: get(row, "leased_until")?,
            process: get(row, "process")?,
        })
    };
    rows.iter().map(shard).collect()
}

/// What keeps the generation of shards that is read from ending, where a later one waits for it.
pub(super) async fn hold_ups(connection: &mut PgConnection, schema: &Identifier) -> LogResult<Vec<String>> {
    let found = sqlx::query_scalar(AssertSqlSafe(SeatStatements::finish(schema).hold_ups))
        .bind(schema.as_str())
        .fetch_all(connection)
        .await?;
    Ok(found)
}

/// A shard whose sequence stands below what was read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetBack {
    pub(super) shard: i32,
    pub(super) read_to: i64,
    pub(super) last: i64,
}

/// Shards in which new rows would count as read.
pub(super) async fn set_back(connection: &mut PgConnection, schema: &Identifier) -> Result<Vec<SetBack>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(SeatStatements::finish(schema).set_back))
        // A queue's pool may be that of a pooler.
        .persistent(false)
        .bind(schema.as_str())
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let shard = |row: &PgRow| {
        Ok(SetBack {
            shard: get(row, "shard")?,
            read_to: get(row, "read_to")?,
            last: get(row, "last_value")?,
        })
    };
    rows.iter().map(shard).collect()
}

/// The last digits of an instance, which is all that a lock can hold of it. The first ones are its time.
fn key(instance: Uuid) -> u32 {
    let [.., a, b, c, d] = *instance.as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

fn get<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(name).map_err(store_error)
}
