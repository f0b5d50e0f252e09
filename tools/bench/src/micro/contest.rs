//! Several ways to empty a backlog, in turns.

use std::time::Duration;

use anyhow::ensure;
use posthaste_relay::{OrderingConfig, RelayConfig};
use sqlx::PgConnection;

use crate::micro::backlog::{self, Keys};
use crate::micro::report::progress;

const REPETITIONS: usize = 3;

/// Rows that a contender drains before it is the next one's turn. Few, because a busy machine changes its speed from one
/// second to the next; not too few, because a relay starts and ends with each turn.
pub(crate) const TURN: u32 = 10_000;

/// Ways to empty a backlog that are compared with each other.
pub(crate) trait Contest {
    /// What it is called while one waits for it.
    const NAME: &str;

    type Contender: Copy;

    /// A connection to the database, for filling it and looking at what is left.
    fn conn(&mut self) -> &mut PgConnection;

    /// Drains the rows of one turn and returns how long it took.
    async fn turn(&mut self, contender: Self::Contender) -> anyhow::Result<Duration>;

    /// Lets all take `turns` turns on one backlog, as often as there are repetitions; returns their speeds.
    async fn compare(
        &mut self,
        keys: Keys,
        contenders: &[Self::Contender],
        turns: u32,
    ) -> anyhow::Result<Vec<Vec<f64>>> {
        let mut speeds = vec![Vec::new(); contenders.len()];
        for _ in 0..REPETITIONS {
            let now = self.race(keys, contenders, turns).await?;
            progress(&format!("{}: {now:.0?} rows/s", Self::NAME));
            for (speeds, speed) in speeds.iter_mut().zip(now) {
                speeds.push(speed);
            }
        }
        Ok(speeds)
    }

    /// One repetition.
    async fn race(&mut self, keys: Keys, contenders: &[Self::Contender], turns: u32) -> anyhow::Result<Vec<f64>> {
        let count = u32::try_from(contenders.len())?;
        backlog::fill(self.conn(), TURN * turns * count, keys).await?;
        let mut times = vec![Duration::ZERO; contenders.len()];
        for _ in 0..turns {
            for (contender, time) in contenders.iter().zip(&mut times) {
                *time += self.turn(*contender).await?;
            }
        }
        let left = backlog::left(self.conn()).await?;
        ensure!(left == 0, "{left} rows were not delivered");
        let speed = |time: &Duration| f64::from(TURN * turns) / time.as_secs_f64();
        Ok(times.iter().map(speed).collect())
    }
}

/// The default settings: what is measured is what people get.
pub(crate) fn config(per_key: bool) -> RelayConfig {
    RelayConfig {
        ordering: OrderingConfig {
            per_key,
            ..OrderingConfig::default()
        },
        ..RelayConfig::default()
    }
}
