//! The reader against a cursor that waits for the oldest open transaction, over random schedules on a real server.

use std::collections::HashSet;

use posthaste_core::RelayStore;
use posthaste_postgres::PostgresLogStore;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sqlx::{Postgres, Transaction};

use super::eventually;

use crate::support::log::{Log, Work, request};

const ROUNDS: usize = 12;
const STEPS: usize = 30;
const MAX_OPEN: usize = 4;

struct Schedule {
    log: Log,
    random: StdRng,
    open: Vec<Transaction<'static, Postgres>>,
    store: PostgresLogStore,
    in_flight: Vec<Work>,
    delivered: HashSet<String>,
    /// Delivered by this reader, and maybe not stored yet.
    unstored: HashSet<String>,
    /// Delivered by one that was killed, and not again since: its successors may send them again.
    may_repeat: HashSet<String>,
    repeated: usize,
}

impl Schedule {
    async fn new(seed: u64) -> Self {
        let log = Log::fresh(10).await;
        Self {
            store: log.store(),
            log,
            random: StdRng::seed_from_u64(seed),
            open: Vec::new(),
            in_flight: Vec::new(),
            delivered: HashSet::new(),
            unstored: HashSet::new(),
            may_repeat: HashSet::new(),
            repeated: 0,
        }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..20) {
            0..3 if self.open.len() < MAX_OPEN => self.open.push(self.log.pool.begin().await.unwrap()),
            0..9 => {
                if let Some(place) = self.some_open() {
                    let key = self.random.random_range(0..5).to_string();
                    self.log.append(&mut *self.open[place], &key).await;
                }
            }
            9..11 => {
                if let Some(place) = self.some_open() {
                    self.open.swap_remove(place).commit().await.unwrap();
                }
            }
            11 => {
                if let Some(place) = self.some_open() {
                    self.open.swap_remove(place).rollback().await.unwrap();
                }
            }
            12..15 => self.claim().await,
            15..18 => self.settle().await,
            18 => self.restart(true).await,
            _ => self.restart(false).await,
        }
    }

    fn some_open(&mut self) -> Option<usize> {
        let places: Vec<usize> = (0..self.open.len()).collect();
        places.choose(&mut self.random).copied()
    }

    async fn claim(&mut self) {
        let limit = self.random.random_range(1..6);
        let mut work = Work::claim(&self.store, &request(limit)).await;
        // The server may not have missed a killed reader yet.
        eventually("it reads", async || {
            if self.store.gaps().await.is_none() {
                work = Work::claim(&self.store, &request(limit)).await;
            }
            self.store.gaps().await.is_some()
        })
        .await;
        for event in work.events() {
            if self.delivered.contains(&event) {
                assert!(
                    self.may_repeat.contains(&event),
                    "it was settled and stored, and is repeated"
                );
                self.repeated += 1;
            }
        }
        if !work.events().is_empty() {
            self.in_flight.push(work);
        }
    }

    async fn settle(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let place = self.random.random_range(0..self.in_flight.len());
        let work = self.in_flight.swap_remove(place);
        assert_eq!(work.settle(&self.store, &[]).await, []);
        for event in work.events() {
            self.may_repeat.remove(&event);
            self.unstored.insert(event.clone());
            self.delivered.insert(event);
        }
    }

    async fn restart(&mut self, clean: bool) {
        self.in_flight.clear();
        if clean {
            self.store.close().await.unwrap();
            self.unstored.clear();
        }
        self.may_repeat.extend(std::mem::take(&mut self.unstored));
        self.store = self.log.store();
    }

    async fn drain(&mut self) {
        let mut empty = 0;
        while empty < 3 {
            while !self.in_flight.is_empty() {
                self.settle().await;
            }
            self.claim().await;
            empty = if self.in_flight.is_empty() { empty + 1 } else { 0 };
        }
    }

    /// What a reader finds that reads only below the oldest of these transactions that is open: not of the whole server's,
    /// where other tests leave theirs open, for as long as they like.
    async fn below_watermark(&mut self) -> HashSet<String> {
        let mut open = Vec::new();
        for transaction in &mut self.open {
            let own = "select (pg_current_xact_id_if_assigned()::text::bigint % 4294967296)::text";
            let id: Option<String> = sqlx::query_scalar(own).fetch_one(&mut **transaction).await.unwrap();
            open.extend(id);
        }
        let below = "select event_id from outbox where not exists (
            select from unnest($1::text[]) as open (id) where age(xmin) <= age(open.id::xid))";
        let below = sqlx::query_scalar(below).bind(open).fetch_all(&self.log.pool).await;
        below.unwrap().into_iter().collect()
    }

    async fn committed(&self) -> HashSet<String> {
        self.log
            .texts("select event_id from outbox")
            .await
            .into_iter()
            .collect()
    }
}

/// Proves C9 and pitfall 1.
#[tokio::test]
async fn the_reader_is_never_behind_an_xmin_watermark_whatever_the_schedule() {
    for _ in 0..3 {
        let seed = rand::random();
        println!("seed {seed}");
        let mut schedule = Schedule::new(seed).await;
        for _ in 0..ROUNDS {
            for _ in 0..STEPS {
                schedule.step().await;
            }
            // Asked first: what the oracle has by now the reader must have found after it.
            let oracle = schedule.below_watermark().await;
            let committed = schedule.committed().await;
            schedule.drain().await;
            assert_eq!(oracle.difference(&schedule.delivered).count(), 0, "the oracle is ahead");
            assert_eq!(
                committed, schedule.delivered,
                "it waits for no transaction, and invents nothing"
            );
        }
        while let Some(transaction) = schedule.open.pop() {
            transaction.commit().await.unwrap();
        }
        let oracle = schedule.below_watermark().await;
        assert_eq!(oracle, schedule.committed().await, "nothing is open");
        schedule.drain().await;
        assert_eq!(oracle, schedule.delivered, "both have found the same");
        schedule.store.close().await.unwrap();
        let last = schedule.log.number("select coalesce(max(id), 0) from outbox").await;
        assert!(schedule.log.cursor().await >= last, "the cursor is past everything");
        println!("{} events, {} repeated", schedule.delivered.len(), schedule.repeated);
    }
}
