//! A large backlog beside a small one: the number of rows that wait must not slow down those that go.

use std::time::Instant;

use anyhow::ensure;
use posthaste_relay::Relay;
use posthaste_testkit::NullPublisher;
use sqlx::Connection;

use crate::Extent;
use crate::backlog::{self, Keys};
use crate::database::Database;
use crate::drain::config;
use crate::first_rows::FirstRows;
use crate::report::{Figure, Target, progress};

const UNIT: &str = "rows/s";
const SMALL: u32 = 20_000;
const LARGE: u32 = 500_000;
const TARGET: Target = Target::RatioAtLeast(0.8);

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let mut figures = compare(database, "1,000 keys", Keys::Even(1_000), !extent.quick).await?;
    if !extent.quick {
        // While some rows of the key are on their way, all others are in the way of the claim.
        figures.extend(compare(database, "one key", Keys::Single, false).await?);
    }
    Ok(figures)
}

async fn compare(database: &Database, kind: &str, keys: Keys, to_the_end: bool) -> anyhow::Result<Vec<Figure>> {
    let mut conn = database.connect().await?;
    let (mut small, mut first, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        backlog::fill(&mut conn, SMALL, keys).await?;
        small.push(first_rows(database, SMALL).await?);
        backlog::fill(&mut conn, LARGE, keys).await?;
        first.push(first_rows(database, SMALL).await?);
        if to_the_end {
            rest.push(first_rows(database, LARGE - SMALL).await?);
            let left = backlog::left(&mut conn).await?;
            ensure!(left == 0, "{left} rows were not delivered");
        }
        progress(&format!(
            "scaling, {kind}: small {small:.0?}, large {first:.0?}, its rest {rest:.0?}"
        ));
    }
    conn.close().await?;
    let name = |part| format!("scaling: {kind}, {part}");
    let against_small = |part, speeds: &[f64]| {
        let figure = Figure::new(name(part), UNIT, speeds).relative_to(&small);
        figure.target(TARGET)
    };
    let mut figures = vec![
        Figure::new(name("all of 20,000"), UNIT, &small),
        against_small("first 20,000 of 500,000", &first),
    ];
    if to_the_end {
        figures.push(against_small("other 480,000 of 500,000", &rest));
    }
    Ok(figures)
}

/// Drains so many rows and returns the speed.
async fn first_rows(database: &Database, rows: u32) -> anyhow::Result<f64> {
    let store = database.store();
    let first = FirstRows::new(store.clone(), rows);
    let started = Instant::now();
    let report = Relay::new(first, NullPublisher).config(config(true)).drain().await?;
    let speed = f64::from(rows) / started.elapsed().as_secs_f64();
    store.pool().close().await;
    ensure!(
        report.delivered == u64::from(rows),
        "{} of {rows} rows were delivered",
        report.delivered
    );
    Ok(speed)
}
