//! Guests who give, and ask more than once.

use std::fmt;
use std::ops::AddAssign;

use donation::donate::{Donation, Given, NotGiven, donate};
use donation::setup;
use rand::RngExt;
use sqlx::MySqlPool;
use tokio::task::JoinSet;
use uuid::Uuid;

/// Guests and what each has; some of them will run out of points.
pub const GUESTS: usize = 20;
pub const ADMINS: usize = 3;
pub const POINTS: i64 = 120;

/// The amount of the donation that the receiver refuses to hear of.
pub const REFUSED: i64 = 13;

/// How requests were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    given: usize,
    before: usize,
    not_enough: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.given += other.given;
        self.before += other.before;
        self.not_enough += other.not_enough;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            given,
            before,
            not_enough,
        } = self;
        write!(
            f,
            "{given} donations, asked for {before} times more; {not_enough} requests of guests without the points"
        )
    }
}

/// Registers guests and admins.
pub async fn register(pool: &MySqlPool) -> sqlx::Result<()> {
    for n in 0..GUESTS {
        setup::member(pool, &guest(n), &format!("browser of {}", guest(n)), POINTS).await?;
    }
    for n in 0..ADMINS {
        setup::member(pool, &format!("admin-{n}"), &fingerprint(n), 0).await?;
    }
    Ok(())
}

/// Many donations, some at a time, each asked for up to three times at once.
pub async fn give(pool: &MySqlPool, donations: usize, at_a_time: usize) -> anyhow::Result<Tally> {
    let mut asking = JoinSet::new();
    let mut tally = Tally::default();
    for _ in 0..donations {
        let (donation, times) = {
            let mut rng = rand::rng();
            let amount = rng.random_range(1..=12);
            (
                donation(rng.random_range(0..GUESTS), rng.random_range(0..ADMINS), amount),
                rng.random_range(1..=3),
            )
        };
        for _ in 0..times {
            while asking.len() >= at_a_time {
                tally.count(asking.join_next().await)?;
            }
            let (pool, donation) = (pool.clone(), donation.clone());
            asking.spawn(async move { donate(&pool, &donation).await });
        }
    }
    while !asking.is_empty() {
        tally.count(asking.join_next().await)?;
    }
    Ok(tally)
}

impl Tally {
    fn count(&mut self, answer: Option<Result<Result<Given, NotGiven>, tokio::task::JoinError>>) -> anyhow::Result<()> {
        match answer.transpose()? {
            None => {}
            Some(Ok(Given::Now)) => self.given += 1,
            Some(Ok(Given::Before)) => self.before += 1,
            Some(Err(NotGiven::NotEnough { .. })) => self.not_enough += 1,
            Some(Err(error)) => return Err(error.into()),
        }
        Ok(())
    }
}

/// A donation whose event somebody then makes ten times as large, in the table. Returns its request id.
pub async fn give_and_corrupt(pool: &MySqlPool) -> anyhow::Result<String> {
    let donation = donation(0, 0, 10);
    donate(pool, &donation).await?;
    sqlx::query("update donation_outbox set payload = replace(payload, ':10,', ':100,') where request_id = ?")
        .bind(&donation.request_id)
        .execute(pool)
        .await?;
    Ok(donation.request_id)
}

/// A donation that the receiver refuses to hear of.
pub async fn give_what_is_refused(pool: &MySqlPool) -> anyhow::Result<()> {
    donate(pool, &donation(1, 0, REFUSED)).await?;
    Ok(())
}

fn donation(from: usize, to: usize, amount: i64) -> Donation {
    Donation {
        request_id: Uuid::new_v4().to_string(),
        guest: guest(from),
        admin: fingerprint(to),
        amount,
    }
}

fn guest(n: usize) -> String {
    format!("guest-{n}")
}

fn fingerprint(n: usize) -> String {
    format!("browser of admin-{n}")
}
