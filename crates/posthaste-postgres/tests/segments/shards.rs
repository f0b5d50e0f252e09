//! More shards, without an event that passes an earlier one of its key.

use sqlx::{Executor, Row};

use crate::Log;

async fn readable(log: &Log) -> Vec<i32> {
    let rows = log.rows("select * from {schema}.log_readable_shards()").await;
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn new_shards_are_read_when_the_old_ones_are_at_their_end() {
    let log = Log::fresh(6).await;
    let insert =
        || log.sql("insert into {schema}.log (topic, ordering_key, payload) values ('t', 'k', 'p') returning shard");
    log.append(10).await;
    let mut open = log.pool().begin().await.unwrap();
    open.execute(sqlx::raw_sql(insert())).await.unwrap();
    assert_eq!(log.tables.raise_shards(4).await.unwrap(), 2);
    assert_eq!(
        log.tables.raise_shards(4).await.unwrap(),
        2,
        "and once more changes nothing"
    );
    assert!(log.tables.raise_shards(3).await.is_err());
    // At once, for writers that begin now; whoever began earlier is waited for.
    let row = sqlx::query(insert()).fetch_one(log.pool()).await.unwrap();
    assert!((1..=4).contains(&row.get::<i32, _>(0)));
    log.settle_all().await;
    assert_eq!(readable(&log).await, [0]);
    let gid = format!("'{}'", log.schema);
    open.execute(sqlx::raw_sql(log.sql(&format!("prepare transaction {gid}"))))
        .await
        .unwrap();
    drop(open);
    log.settle_all().await;
    assert_eq!(readable(&log).await, [0], "it is prepared, and may commit its row");
    log.run("update {schema}.log_shards set state = '10;' where shard = 0")
        .await;
    log.run(&format!("commit prepared {gid}")).await;
    assert_eq!(readable(&log).await, [0], "its row is to be read");
    log.run("update {schema}.log_shards set state = '12;11-11' where shard = 0")
        .await;
    assert_eq!(readable(&log).await, [0], "it is in flight");
    log.run("update {schema}.log_shards set state = '12;' where shard = 0")
        .await;
    assert_eq!(readable(&log).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_raise_that_was_cut_short_is_finished_before_the_one_that_is_asked_for() {
    let log = Log::fresh(4).await;
    let shards = "select shards::bigint from {schema}.log_generations
        where switched_at is not null order by generation desc limit 1";
    log.run("select {schema}.log_make_shards(4)").await;
    let refused = log.tables.raise_shards(2).await.unwrap_err().to_string();
    assert!(refused.contains("to 4 was begun"), "{refused}");
    assert_eq!(log.count(shards).await, 1, "nothing is changed by it");
    assert_eq!(log.tables.raise_shards(8).await.unwrap(), 3);
    assert_eq!(log.count(shards).await, 8);
    log.append(200).await;
    let outside = "select count(*) from {schema}.log where shard not between 5 and 12";
    assert_eq!(log.count(outside).await, 0, "rows go to the eight");
    // One that was begun for as many is that which was asked for.
    log.run("select {schema}.log_make_shards(9)").await;
    assert_eq!(log.tables.raise_shards(9).await.unwrap(), 4);
    assert_eq!(log.count(shards).await, 9);
}

#[tokio::test]
async fn a_key_stays_in_its_shard() {
    let log = Log::fresh(4).await;
    log.tables.raise_shards(8).await.unwrap();
    log.append(200).await;
    let keys = log
        .count("select count(distinct (ordering_key, shard)) from {schema}.log")
        .await;
    assert_eq!(keys, 7);
    assert!(log.count("select count(distinct shard) from {schema}.log").await > 2);
}
