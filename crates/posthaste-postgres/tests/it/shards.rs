//! Who reads which shard of a log: spread evenly, handed over, taken over, and fenced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use posthaste_postgres::{ShardCheckpoint, ShardSeats};
use posthaste_sql::log::ReaderState;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::time::sleep;

use crate::support;

const SHARDS: i32 = 8;
const LEASE: Duration = Duration::from_secs(30);

/// A log with eight shards.
struct Place {
    schema: String,
    connection: PgConnection,
}

impl Place {
    async fn fresh() -> Self {
        let schema = support::fresh_schema();
        let mut connection = PgConnection::connect(&support::server_url()).await.unwrap();
        let ddl = include_str!("../support/log_shards.sql");
        let sql = format!(
            "create schema {schema}; set search_path to {schema}; {ddl};
             insert into log_shards (shard) select generate_series(0, {SHARDS} - 1)"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        Self { schema, connection }
    }

    async fn instance(&self) -> Instance {
        let mut connection = PgConnection::connect(&support::server_url()).await.unwrap();
        let mut seats = ShardSeats::new(&self.schema).unwrap();
        seats.register(&mut connection).await.unwrap();
        Instance { connection, seats }
    }

    /// Who has which shards, by the table.
    async fn owners(&mut self) -> BTreeMap<i32, Option<uuid::Uuid>> {
        let rows = self
            .connection
            .fetch_all("select shard, owner from log_shards")
            .await
            .unwrap();
        rows.iter().map(|row| (row.get("shard"), row.get("owner"))).collect()
    }

    async fn text(&mut self, sql: &'static str) -> String {
        sqlx::query_scalar(sql).fetch_one(&mut self.connection).await.unwrap()
    }
}

struct Instance {
    connection: PgConnection,
    seats: ShardSeats,
}

impl Instance {
    /// Looks once, with nothing in flight; returns how many shards it has then.
    async fn balance(&mut self, lease: Duration) -> usize {
        self.balance_with(lease, |_| false).await
    }

    async fn balance_with(&mut self, lease: Duration, busy: impl Fn(i32) -> bool) -> usize {
        self.seats.balance(&mut self.connection, lease, busy).await.unwrap();
        self.held().len()
    }

    fn held(&self) -> BTreeSet<i32> {
        self.seats.held().collect()
    }

    async fn checkpoint(&mut self, shard: i32, state: &str) -> Vec<i32> {
        let state: ReaderState = state.parse().unwrap();
        let checkpoint = ShardCheckpoint {
            shard,
            position: state.position(),
            state,
        };
        self.seats
            .checkpoint(&mut self.connection, &[checkpoint])
            .await
            .unwrap()
    }
}

/// All look a few times, in turn.
async fn settle_down(instances: &mut [&mut Instance], lease: Duration) -> Vec<usize> {
    for _ in 0..3 {
        for instance in instances.iter_mut() {
            instance.balance(lease).await;
        }
    }
    instances.iter().map(|instance| instance.held().len()).collect()
}

#[tokio::test]
async fn two_and_three_instances_share_eight_shards_evenly() {
    let mut place = Place::fresh().await;
    let mut first = place.instance().await;
    assert_eq!(first.balance(LEASE).await, 8, "one alone reads all");
    let mut second = place.instance().await;
    assert_eq!(settle_down(&mut [&mut first, &mut second], LEASE).await, [4, 4]);
    let mut third = place.instance().await;
    let mut counts = settle_down(&mut [&mut first, &mut second, &mut third], LEASE).await;
    counts.sort_unstable();
    assert_eq!(counts, [2, 3, 3]);
    let all: Vec<i32> = [&first, &second, &third].iter().flat_map(|one| one.held()).collect();
    assert_eq!(all.len(), 8);
    assert_eq!(
        all.into_iter().collect::<BTreeSet<_>>().len(),
        8,
        "no shard has two readers"
    );
    assert!(place.owners().await.values().all(Option::is_some));
    let before = place.owners().await;
    settle_down(&mut [&mut first, &mut second, &mut third], LEASE).await;
    assert_eq!(place.owners().await, before, "and then nothing moves");
}

/// What is in flight is answered by the one that sent it: until then nobody else reads on.
#[tokio::test]
async fn a_shard_is_handed_over_only_when_nothing_of_it_is_in_flight() {
    let place = Place::fresh().await;
    let (mut first, mut second) = (place.instance().await, place.instance().await);
    assert_eq!(first.balance(LEASE).await, 4, "it knows of the second one");
    assert_eq!(second.balance(LEASE).await, 4);
    let mut third = place.instance().await;
    first.balance_with(LEASE, |_| true).await;
    assert_eq!(
        first.seats.leaving().count() + first.held().len(),
        4,
        "all answers are awaited"
    );
    assert_eq!(third.balance(LEASE).await, 0, "so there is nothing to take");
    let leaving: Vec<i32> = first.seats.leaving().collect();
    for shard in &leaving {
        assert!(first.checkpoint(*shard, "9;4-5").await.is_empty());
    }
    first.balance(LEASE).await;
    assert_eq!(first.seats.leaving().count(), 0);
    let taken = third
        .seats
        .balance(&mut third.connection, LEASE, |_| false)
        .await
        .unwrap()
        .taken;
    for shard in taken.iter().filter(|taken| leaving.contains(&taken.shard)) {
        assert_eq!(
            shard.state,
            "9;4-5".parse().unwrap(),
            "it goes on where the first one ended"
        );
    }
    assert_eq!(taken.len(), leaving.len());
}

/// The process is gone, and with it its connection; its shards are free when its leases are over, and not before.
#[tokio::test]
async fn the_shards_of_a_dead_instance_are_taken_over_after_its_lease() {
    let lease = Duration::from_secs(2);
    let place = Place::fresh().await;
    let mut dead = place.instance().await;
    let begun = Instant::now();
    assert_eq!(dead.balance(lease).await, 8);
    drop(dead);
    let mut next = place.instance().await;
    while next.balance(LEASE).await < 8 {
        assert!(begun.elapsed() < Duration::from_mins(1), "not taken over");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() >= lease, "after {:?}", begun.elapsed());
}

/// One that was frozen for longer than its lease believes that it still has its shards.
#[tokio::test]
async fn a_stale_owner_writes_nothing_and_learns_that_it_is_one() {
    let mut place = Place::fresh().await;
    let mut stale = place.instance().await;
    let brief = Duration::from_millis(200);
    assert_eq!(stale.balance(brief).await, 8);
    assert!(stale.checkpoint(3, "20;7-8").await.is_empty());
    sleep(brief * 2).await;
    let mut next = place.instance().await;
    assert_eq!(next.balance(LEASE).await, 4, "its share of what is free");
    let taken = *next.held().first().unwrap();
    let kept = *stale.held().difference(&next.held()).next().unwrap();

    let mut tx = stale.connection.begin().await.unwrap();
    assert!(
        !stale.seats.fence(&mut tx, taken).await.unwrap(),
        "its failures are not written"
    );
    assert!(stale.seats.fence(&mut tx, kept).await.unwrap());
    tx.commit().await.unwrap();
    assert!(next.checkpoint(taken, "50;").await.is_empty());
    assert_eq!(stale.checkpoint(taken, "30;").await, [taken], "refused");
    assert!(!stale.held().contains(&taken), "and it knows");
    assert_eq!(stale.checkpoint(taken, "31;").await, [taken]);
    assert_eq!(
        place.text("select max(state) from log_shards where hi = 50").await,
        "50;"
    );

    // What nobody took in the meantime is its own still, and renewed.
    let lost = stale.seats.renew(&mut stale.connection, LEASE).await.unwrap();
    assert_eq!(lost.len(), 3, "the rest of what the other one took");
    assert_eq!(stale.held().len(), 4);
    let all: BTreeSet<i32> = stale.held().union(&next.held()).copied().collect();
    assert_eq!(all.len(), 8);
}

/// A write that began under the old epoch is finished before the shard can be taken.
#[tokio::test]
async fn a_fenced_write_holds_off_a_take_over() {
    let place = Place::fresh().await;
    let mut stale = place.instance().await;
    let brief = Duration::from_millis(100);
    assert_eq!(stale.balance(brief).await, 8);
    let mut tx = stale.connection.begin().await.unwrap();
    assert!(stale.seats.fence(&mut tx, 0).await.unwrap());
    sleep(brief * 2).await;
    let mut next = place.instance().await;
    for _ in 0..3 {
        next.balance(LEASE).await;
    }
    assert!(!next.held().contains(&0), "it is passed over, and not waited for");
    tx.commit().await.unwrap();
}

/// Instances come and go at random: no shard ever has two that may write, and none stays without a reader.
#[tokio::test]
async fn whoever_comes_and_goes_a_shard_has_one_writer() {
    let mut place = Place::fresh().await;
    let lease = Duration::from_millis(300);
    let mut instances: Vec<Instance> = vec![place.instance().await];
    let mut written: BTreeMap<i32, i64> = BTreeMap::new();
    for _ in 0..60 {
        match rand::random_range(0..6) {
            0 if instances.len() < 4 => instances.push(place.instance().await),
            1 if instances.len() > 1 => drop(instances.swap_remove(rand::random_range(0..instances.len()))),
            2 => sleep(lease).await,
            _ => {}
        }
        for instance in &mut instances {
            if rand::random_bool(0.7) {
                instance.balance(lease).await;
            }
            // Also one whose leases are over tries to write; whoever may goes on from what was written last.
            for shard in instance.held() {
                let next = written.get(&shard).copied().unwrap_or(0) + 1;
                if instance.checkpoint(shard, &format!("{next};")).await.is_empty() {
                    written.insert(shard, next);
                }
            }
        }
    }
    let rows = place
        .connection
        .fetch_all("select shard, hi from log_shards")
        .await
        .unwrap();
    for row in &rows {
        let (shard, hi): (i32, i64) = (row.get("shard"), row.get("hi"));
        assert_eq!(
            hi,
            written.get(&shard).copied().unwrap_or(0),
            "no write of a stale owner went through"
        );
    }
    sleep(lease).await;
    let mut all: Vec<&mut Instance> = instances.iter_mut().collect();
    let counts = settle_down(&mut all, LEASE).await;
    assert_eq!(counts.iter().sum::<usize>(), 8);
    assert!(
        counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
        "{counts:?}"
    );
}
