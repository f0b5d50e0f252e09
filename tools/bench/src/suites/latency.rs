//! From commit to acknowledgement by a broker, at shares of what application and relay can do together.

use std::time::Duration;

use crate::arm;
use crate::bench::Bench;
use crate::results::{Results, progress};
use crate::serving::{Serving, waits};
use crate::shuffled::shuffled;

pub(crate) const SUITE: &str = "latency";
pub(crate) const P50: &str = "p50 ms";
pub(crate) const P99: &str = "p99 ms";
const MOST: &str = "transactions/s at most";
const ARMS: [&str; 2] = ["log", "queue"];
pub(crate) const LOADS: [u32; 3] = [10, 30, 60];

pub(crate) fn subject(arm: &str, load: u32) -> String {
    format!("{arm}, {load} % load")
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    for name in ARMS {
        results.announce((SUITE, name, MOST));
        for load in LOADS {
            results.announce((SUITE, &subject(name, load), P50));
            results.announce((SUITE, &subject(name, load), P99));
        }
    }
    for round in 0..bench.extent.rounds {
        for name in shuffled(ARMS) {
            if let Err(error) = measure(bench, name, round, results).await {
                results.void(&error.context(format!("latency, {name}")));
            }
        }
    }
}

async fn measure(bench: &Bench, name: &str, round: u32, results: &mut Results) -> anyhow::Result<()> {
    let arm = arm::find(name).expect("an arm of ours");
    let serving = Serving::start(bench, arm).await?;
    let most = serving
        .producers
        .as_fast_as_possible(Duration::from_secs(bench.extent.pick(2, 5)))
        .await?;
    serving.wait_until_delivered().await?;
    progress(&format!("latency, {name}: at most {most:.0} transactions/s"));
    results.add((SUITE, name, MOST), round, most);
    let mut phases = Vec::new();
    for load in shuffled(LOADS) {
        let time = Duration::from_secs(bench.extent.pick(3, 15));
        let commits = serving.producers.at_rate(most * f64::from(load) / 100.0, time).await?;
        serving.wait_until_delivered().await?;
        phases.push((load, commits));
    }
    let (ordered, written) = (arm.ordered, serving.producers.written());
    let (done, arrived) = serving.end().await?;
    arrived.verify(written, ordered)?;
    for (load, commits) in &phases {
        let (p50, p99) = waits(commits, &done)?;
        progress(&format!(
            "latency, {name}, {load} % load: p50 {p50:.1} ms, p99 {p99:.1} ms"
        ));
        results.add((SUITE, &subject(name, *load), P50), round, p50);
        results.add((SUITE, &subject(name, *load), P99), round, p99);
    }
    Ok(())
}
