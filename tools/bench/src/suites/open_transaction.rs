//! How long messages of other keys take while one transaction stays open.

use std::time::Duration;

use crate::arm;
use crate::bench::Bench;
use crate::results::{Results, progress};
use crate::serving::{Serving, waits};
use crate::shuffled::shuffled;
use crate::suites::latency::{P50, P99};

pub(crate) const SUITE: &str = "open-transaction";
/// Transactions a second: little enough that nothing else is waited for.
const RATE: f64 = 500.0;
const ARMS: [&str; 2] = ["log", "queue"];

pub(crate) fn subject(arm: &str, is_open: bool) -> String {
    format!("{arm}, {}", if is_open { "one transaction open" } else { "clean" })
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    for name in ARMS {
        for is_open in [false, true] {
            results.announce((SUITE, &subject(name, is_open), P50));
            results.announce((SUITE, &subject(name, is_open), P99));
        }
    }
    for round in 0..bench.extent.rounds {
        for name in shuffled(ARMS) {
            if let Err(error) = measure(bench, name, round, results).await {
                results.void(&error.context(format!("open transaction, {name}")));
            }
        }
    }
}

async fn measure(bench: &Bench, name: &str, round: u32, results: &mut Results) -> anyhow::Result<()> {
    let arm = arm::find(name).expect("an arm of ours");
    let time = Duration::from_secs(bench.extent.pick(5, 30));
    let serving = Serving::start(bench, arm).await?;
    let producers = &serving.producers;
    producers.at_rate(RATE, Duration::from_secs(2)).await?;
    let mut phases = Vec::new();
    for is_open in shuffled([false, true]) {
        let open = if is_open {
            Some(producers.begin_one().await?)
        } else {
            None
        };
        phases.push((producers.at_rate(RATE, time).await?, is_open));
        if let Some(open) = open {
            producers.commit(open).await?;
        }
        serving.wait_until_delivered().await?;
    }
    let written = producers.written();
    let (done, arrived) = serving.end().await?;
    // The row of the open transaction comes after later ones of its key: it was committed after them.
    arrived.verify(written, false)?;
    for (commits, is_open) in phases {
        let (p50, p99) = waits(&commits, &done)?;
        let subject = subject(name, is_open);
        progress(&format!(
            "open transaction, {subject}: p50 {p50:.1} ms, p99 {p99:.1} ms"
        ));
        results.add((SUITE, &subject, P50), round, p50);
        results.add((SUITE, &subject, P99), round, p99);
    }
    Ok(())
}
