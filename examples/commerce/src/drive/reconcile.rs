//! The books: what was committed beside what was counted.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use anyhow::Context;
use posthaste::kafka::{Connection, dead_letter};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value;
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::wire::TOPICS;

/// Committed and counted totals, and how many products differ.
#[derive(Debug, Default)]
pub struct Line {
    committed: i64,
    counted: i64,
    products_that_differ: i64,
}

#[derive(Debug, Default)]
pub struct Books {
    likes: Line,
    sales: Line,
    views: Line,
    undelivered: i64,
    dead: i64,
    dead_letters: i64,
    sold_out: i64,
    stale: i64,
}

/// Poison events that were put in.
const POISON: i64 = 1;

impl Books {
    pub fn balanced(&self) -> bool {
        let lines = [&self.likes, &self.sales, &self.views];
        lines
            .iter()
            .all(|line| line.committed == line.counted && line.products_that_differ == 0)
            && (self.undelivered, self.dead, self.dead_letters, self.stale) == (0, 0, POISON, 0)
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:8}{:>12}{:>12}{:>22}",
            "", "committed", "counted", "products that differ"
        )?;
        for (name, line) in [("likes", &self.likes), ("sales", &self.sales), ("views", &self.views)] {
            writeln!(
                f,
                "{name:8}{:>12}{:>12}{:>22}",
                line.committed, line.counted, line.products_that_differ
            )?;
        }
        writeln!(f, "undelivered {}, dead in the outbox {}", self.undelivered, self.dead)?;
        writeln!(
            f,
            "events in dead-letter topics {} (poison events put in: {POISON})",
            self.dead_letters
        )?;
        writeln!(
            f,
            "sold out {}, of these still shown as available {}",
            self.sold_out, self.stale
        )?;
        f.write_str(if self.balanced() {
            "The books balance: everything committed was counted, once."
        } else {
            "THE BOOKS DO NOT BALANCE."
        })
    }
}

/// Looks until the books balance, or the timeout is over; returns the last look.
pub async fn wait(pool: &PgPool, api: String, kafka: &str, timeout: Duration) -> anyhow::Result<Books> {
    let deadline = Instant::now() + timeout;
    loop {
        let books = look(pool, &api, kafka).await;
        // Brokers and service may still be coming back.
        if Instant::now() > deadline || books.as_ref().is_ok_and(Books::balanced) {
            return books;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

async fn look(pool: &PgPool, api: &str, kafka: &str) -> anyhow::Result<Books> {
    let (undelivered, dead) = sqlx::query_as(
        "select (select count(*) from outbox where id > (
                    select last_processed_id from outbox_cursor order by created_at desc limit 1))
                + count(*) filter (where retry_count < 10),
            count(*) filter (where retry_count >= 10)
           from outbox_failed",
    )
    .fetch_one(pool)
    .await?;
    let mut books = Books {
        likes: line(pool, LIKES).await?,
        sales: line(pool, SALES).await?,
        views: line(pool, VIEWS).await?,
        undelivered,
        dead,
        dead_letters: dead_letters(kafka).await?,
        ..Books::default()
    };
    let sold_out: Vec<i64> = sqlx::query_scalar("select id from product where stock = 0")
        .fetch_all(pool)
        .await?;
    for id in &sold_out {
        let answer = reqwest::get(format!("{api}/products/{id}")).await?;
        let shown: Value = answer.error_for_status()?.json().await?;
        books.stale += i64::from(shown["stock"] != 0);
    }
    books.sold_out = i64::try_from(sold_out.len())?;
    Ok(books)
}

const LIKES: &str = include_str!("likes.sql");
const SALES: &str = include_str!("sales.sql");
const VIEWS: &str = include_str!("views.sql");

async fn line(pool: &PgPool, sql: &'static str) -> anyhow::Result<Line> {
    let (committed, counted, products_that_differ) = sqlx::query_as(sql)
        .fetch_one(pool)
        .await
        .context("cannot make the books")?;
    Ok(Line {
        committed,
        counted,
        products_that_differ,
    })
}

/// Events in the dead-letter topics, which have one partition each. A relay that was killed delivers again what it had not
/// noted as delivered, so an event may have several letters.
async fn dead_letters(kafka: &str) -> anyhow::Result<i64> {
    let consumer: BaseConsumer = Connection::to(kafka)
        .client_config(&[("group.id", "books")])?
        .create()?;
    let counting = tokio::task::spawn_blocking(move || {
        let mut events = HashSet::new();
        for topic in TOPICS {
            events.extend(events_in(&consumer, &dead_letter::topic_for(topic))?);
        }
        anyhow::Ok(i64::try_from(events.len())?)
    });
    counting.await?
}

/// The ids of the events in a topic of one partition.
fn events_in(consumer: &BaseConsumer, topic: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let timeout = Duration::from_secs(10);
    let (low, high) = consumer.fetch_watermarks(topic, 0, timeout)?;
    let mut position = TopicPartitionList::new();
    position.add_partition_offset(topic, 0, Offset::Offset(low))?;
    consumer.assign(&position)?;
    let (mut events, mut next) = (Vec::new(), low);
    while next < high {
        let letter = consumer
            .poll(timeout)
            .context("a letter that is there does not come")??;
        next = letter.offset() + 1;
        let headers = letter.headers().into_iter().flat_map(|headers| headers.iter());
        let id = headers
            .filter(|header| header.key == "ce_id")
            .find_map(|header| header.value);
        events.push(id.unwrap_or_default().to_vec());
    }
    Ok(events)
}
