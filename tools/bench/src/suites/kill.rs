//! What a relay repeats that is killed while a transaction is open.

use std::time::Duration;

use anyhow::ensure;

use crate::arm;
use crate::bench::Bench;
use crate::results::{Results, progress};
use crate::serving::Serving;

pub(crate) const SUITE: &str = "kill";
pub(crate) const REPETITIONS: &str = "repetitions";
const RATE: f64 = 1_000.0;

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    for round in 0..bench.extent.rounds {
        for name in ["log", "queue"] {
            match measure(bench, name).await {
                Ok(repetitions) => {
                    progress(&format!("kill, {name}: {repetitions} repetitions"));
                    results.add((SUITE, name, REPETITIONS), round, repetitions);
                }
                Err(error) => results.void(&error.context(format!("kill, {name}"))),
            }
        }
    }
}

async fn measure(bench: &Bench, name: &str) -> anyhow::Result<f64> {
    let arm = arm::find(name).expect("an arm of ours");
    let time = Duration::from_secs(bench.extent.pick(5, 60));
    let mut serving = Serving::start(bench, arm).await?;
    let open = serving.producers.begin_one().await?;
    serving.producers.at_rate(RATE, time).await?;
    serving.kill_and_replace().await?;
    serving.producers.at_rate(RATE, Duration::from_secs(2)).await?;
    serving.producers.commit(open).await?;
    // Repetitions are records too, so that their number says nothing before the relay has come to rest.
    serving.wait_until_at_rest().await?;
    let written = serving.producers.written();
    let (_, arrived) = serving.end().await?;
    ensure!(
        arrived.rows == u64::from(written),
        "{} of {written} rows arrived",
        arrived.rows
    );
    Ok(crate::series::real(arrived.duplicates))
}
