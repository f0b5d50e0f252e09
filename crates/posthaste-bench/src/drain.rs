//! A backlog through the whole engine, beside a hand-written loop over the same table.

use std::time::Instant;

use anyhow::ensure;
use posthaste_relay::{OrderingConfig, Relay, RelayConfig};
use posthaste_testkit::NullPublisher;
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::backlog::{self, Keys};
use crate::countdown::Countdown;
use crate::database::Database;
use crate::report::{Figure, Target, progress};
use crate::{Extent, baseline};

const UNIT: &str = "rows/s";

/// One way to empty one kind of backlog.
struct Contender {
    name: &'static str,
    keys: Keys,
    way: Way,
    target: Option<Target>,
}

enum Way {
    HandWritten,
    /// A relay that ends when nothing is left.
    Drain {
        per_key: bool,
    },
    /// A relay that serves until it is stopped. It waits between claims where a drain does not, so it has its own ways
    /// to be slow.
    Serve,
}

const CONTENDERS: [Contender; 7] = [
    Contender {
        name: "drain: hand-written loop",
        keys: Keys::Even(1_000),
        way: Way::HandWritten,
        target: None,
    },
    Contender {
        name: "drain: engine, unordered",
        keys: Keys::Even(1_000),
        way: Way::Drain { per_key: false },
        target: Some(Target::RatioAtLeast(0.7)),
    },
    Contender {
        name: "drain: engine, 1,000 keys",
        keys: Keys::Even(1_000),
        way: Way::Drain { per_key: true },
        target: Some(Target::RatioAtLeast(0.5)),
    },
    Contender {
        name: "drain: serving relay, 1,000 keys",
        keys: Keys::Even(1_000),
        way: Way::Serve,
        target: Some(Target::RatioAtLeast(0.5)),
    },
    Contender {
        name: "drain: serving relay, one key",
        keys: Keys::Single,
        way: Way::Serve,
        target: None,
    },
    Contender {
        name: "drain: engine, one key",
        keys: Keys::Single,
        way: Way::Drain { per_key: true },
        target: None,
    },
    Contender {
        name: "drain: engine, 99 % one key",
        keys: Keys::Hot,
        way: Way::Drain { per_key: true },
        target: None,
    },
];

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let rows = extent.pick(60_000, 150_000);
    let mut conn = database.connect().await?;
    let mut speeds = [const { Vec::new() }; CONTENDERS.len()];
    for _ in 0..3 {
        for (contender, speeds) in CONTENDERS.iter().zip(&mut speeds) {
            // What is only reported has to be done in the time that is left.
            let rows = if contender.target.is_none() && !matches!(contender.way, Way::HandWritten) {
                rows / 6
            } else {
                rows
            };
            backlog::fill(&mut conn, rows, contender.keys).await?;
            let speed = measure(&contender.way, database, &mut conn, rows).await?;
            progress(&format!("{}: {speed:.0} rows/s", contender.name));
            speeds.push(speed);
        }
    }
    conn.close().await?;
    let by_hand = speeds[0].clone();
    let figure = |(contender, speeds): (&Contender, Vec<f64>)| {
        let figure = Figure::new(contender.name, UNIT, &speeds);
        match (&contender.way, contender.target) {
            (Way::HandWritten, _) => figure,
            (_, None) => figure.relative_to(&by_hand),
            (_, Some(target)) => figure.relative_to(&by_hand).target(target),
        }
    };
    Ok(CONTENDERS.iter().zip(speeds).map(figure).collect())
}

/// Empties the table and returns the rows per second.
async fn measure(way: &Way, database: &Database, conn: &mut PgConnection, rows: u32) -> anyhow::Result<f64> {
    let store = database.store();
    let started = Instant::now();
    match *way {
        Way::HandWritten => drop(baseline::drain(conn, RelayConfig::default().batch_size).await?),
        Way::Drain { per_key } => {
            let relay = Relay::new(store.clone(), NullPublisher).config(config(per_key));
            relay.drain().await?;
        }
        Way::Serve => {
            let done = CancellationToken::new();
            let publisher = Countdown::new(rows, done.clone());
            let relay = Relay::new(store.clone(), publisher).config(config(true));
            relay.run_until(done).await?;
        }
    }
    let speed = f64::from(rows) / started.elapsed().as_secs_f64();
    store.pool().close().await;
    let left = backlog::left(conn).await?;
    ensure!(left == 0, "{left} rows were not delivered");
    Ok(speed)
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
