//! A backlog through the whole engine, beside a hand-written loop over the same table.

use std::time::{Duration, Instant};

use anyhow::ensure;
use posthaste_postgres::PostgresStore;
use posthaste_relay::{OrderingConfig, Relay, RelayConfig};
use posthaste_testkit::NullPublisher;
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::backlog::Keys;
use crate::contest::{Contest, TURN};
use crate::countdown::Countdown;
use crate::database::Database;
use crate::first_rows::FirstRows;
use crate::report::{Figure, Target};
use crate::{Extent, baseline};

const UNIT: &str = "rows/s";
/// One way to empty a backlog.
#[derive(Clone, Copy)]
enum Contender {
    HandWritten,
    /// A relay that ends when nothing is left.
    Drain {
        per_key: bool,
    },
    /// A relay that serves until it is stopped. It waits between claims where a drain does not, so it has its own ways
    /// to be slow.
    Serve,
}

/// Those who take turns on one backlog; the hand-written loop is what the others are compared with.
const CONTENDERS: [(&str, Contender, Option<f64>); 4] = [
    ("hand-written loop", Contender::HandWritten, None),
    ("engine, unordered", Contender::Drain { per_key: false }, Some(0.7)),
    ("engine, 1,000 keys", Contender::Drain { per_key: true }, Some(0.5)),
    ("serving relay, 1,000 keys", Contender::Serve, Some(0.5)),
];

/// Backlogs in which few rows may go at the same time. Each is compared with the loop on a backlog of the same kind.
const HOT_KEYS: [(&str, Keys, Contender); 3] = [
    ("engine, one key", Keys::Single, Contender::Drain { per_key: true }),
    ("serving relay, one key", Keys::Single, Contender::Serve),
    ("engine, 99 % one key", Keys::Hot, Contender::Drain { per_key: true }),
];

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let bench = Bench {
        store: database.store(),
        conn: database.connect().await?,
    };
    bench.measure(extent).await
}

struct Bench {
    store: PostgresStore,
    conn: PgConnection,
}

impl Bench {
    async fn measure(mut self, extent: Extent) -> anyhow::Result<Vec<Figure>> {
        let contenders = CONTENDERS.map(|(_, contender, _)| contender);
        let speeds = self.compare(Keys::Even(1_000), &contenders, extent.pick(4, 15)).await?;
        let mut figures = Vec::new();
        for ((name, contender, limit), speeds_of_one) in CONTENDERS.into_iter().zip(&speeds) {
            let mut figure = Figure::new(format!("drain: {name}"), UNIT, speeds_of_one);
            if !matches!(contender, Contender::HandWritten) {
                figure = figure.relative_to(&speeds[0]);
            }
            figures.push(match limit {
                Some(limit) => figure.target(Target::RatioAtLeast(limit)),
                None => figure,
            });
        }
        for (name, keys, contender) in HOT_KEYS {
            let speeds = self
                .compare(keys, &[Contender::HandWritten, contender], extent.pick(1, 3))
                .await?;
            figures.push(Figure::new(format!("drain: {name}"), UNIT, &speeds[1]).relative_to(&speeds[0]));
        }
        self.conn.close().await?;
        self.store.pool().close().await;
        Ok(figures)
    }
}

impl Contest for Bench {
    const NAME: &str = "drain";

    type Contender = Contender;

    fn conn(&mut self) -> &mut PgConnection {
        &mut self.conn
    }

    async fn turn(&mut self, contender: Contender) -> anyhow::Result<Duration> {
        let store = FirstRows::new(self.store.clone(), TURN);
        let started = Instant::now();
        let delivered = match contender {
            Contender::HandWritten => baseline::drain(&mut self.conn, TURN, RelayConfig::default().batch_size).await?,
            Contender::Drain { per_key } => {
                let relay = Relay::new(store, NullPublisher).config(config(per_key));
                relay.drain().await?.delivered
            }
            Contender::Serve => {
                let done = CancellationToken::new();
                let relay = Relay::new(store, Countdown::new(TURN, done.clone())).config(config(true));
                relay.run_until(done).await?.delivered
            }
        };
        let elapsed = started.elapsed();
        ensure!(
            delivered == u64::from(TURN),
            "{delivered} of {TURN} rows were delivered"
        );
        Ok(elapsed)
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
