//! The books: points, history, outbox and notifications side by side.

use std::collections::BTreeMap;
use std::fmt;

use sqlx::MySqlPool;

use super::guests::{GUESTS, POINTS};

#[derive(Debug, Default)]
pub struct Books {
    points: i64,
    members_that_differ: i64,
    donations: i64,
    events: i64,
    unpaired: i64,
    told: i64,
    told_twice: i64,
    not_told: i64,
    dead: i64,
    dead_letters: i64,
    reasons: Vec<String>,
    corrupted_was_told: bool,
    stalled: i64,
}

/// Put in: one changed by hand, one that the receiver refuses.
const DEAD: i64 = 2;

impl Books {
    pub fn balanced(&self) -> bool {
        self.points == POINTS * i64::try_from(GUESTS).unwrap_or_default()
            && (self.members_that_differ, self.unpaired, self.not_told) == (0, 0, 0)
            && self.donations == self.events
            && self.told + self.dead == self.events
            && (self.dead, self.dead_letters) == (DEAD, DEAD)
            && !self.corrupted_was_told
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "points        {} in all, {} members whose points differ from their history",
            self.points, self.members_that_differ
        )?;
        writeln!(
            f,
            "donations     {}, events {}, one without the other {}",
            self.donations, self.events, self.unpaired
        )?;
        writeln!(
            f,
            "notified      {}, of these more than once {}, completed and not notified {}",
            self.told, self.told_twice, self.not_told
        )?;
        writeln!(
            f,
            "dead          {}, in donation_dlq {} (put in: {DEAD})",
            self.dead, self.dead_letters
        )?;
        for reason in &self.reasons {
            writeln!(f, "              {reason}")?;
        }
        writeln!(
            f,
            "stalled       {} rows of the relay that was killed, all taken back",
            self.stalled
        )?;
        f.write_str(if self.balanced() {
            "The books balance: every donation was made once, and told of or dead with its reason."
        } else {
            "THE BOOKS DO NOT BALANCE."
        })
    }
}

/// Rows that are on their way.
pub async fn open(pool: &MySqlPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("select count(*) from donation_outbox where status not in ('COMPLETED', 'DEAD_LETTER')")
        .fetch_one(pool)
        .await
}

pub async fn look(
    pool: &MySqlPool,
    told: &BTreeMap<String, usize>,
    corrupted: &str,
    stalled: i64,
) -> anyhow::Result<Books> {
    let (points, members_that_differ) = sqlx::query_as(include_str!("points.sql"))
        .bind(POINTS)
        .fetch_one(pool)
        .await?;
    let (donations, events, unpaired) = sqlx::query_as(include_str!("pairs.sql")).fetch_one(pool).await?;
    let completed: Vec<String> =
        sqlx::query_scalar("select request_id from donation_outbox where status = 'COMPLETED'")
            .fetch_all(pool)
            .await?;
    let dead = "select count(*) from donation_outbox where status = 'DEAD_LETTER'";
    let reasons: Vec<String> = sqlx::query_scalar(
        "select q.reason from donation_dlq q
           join donation_outbox o on o.id = q.original_id and o.request_id = q.request_id
          where o.status = 'DEAD_LETTER' and q.reason is not null
          order by q.id",
    )
    .fetch_all(pool)
    .await?;
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Ok(Books {
        points,
        members_that_differ,
        donations,
        events,
        unpaired,
        told: number(told.len()),
        told_twice: number(told.values().filter(|times| **times > 1).count()),
        not_told: number(completed.iter().filter(|id| !told.contains_key(*id)).count()),
        dead: sqlx::query_scalar(dead).fetch_one(pool).await?,
        dead_letters: number(reasons.len()),
        reasons,
        corrupted_was_told: told.contains_key(corrupted),
        stalled,
    })
}
