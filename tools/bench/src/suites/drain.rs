//! Every arm empties a backlog into every sink, in random order.

use crate::arm::{self, Arm, How};
use crate::bench::Bench;
use crate::brokers::SinkKind;
use crate::extent::Extent;
use crate::results::{Results, progress};
use crate::run::{Drain, Measured};
use crate::shuffled::shuffled;

pub(crate) const SUITE: &str = "drain";
pub(crate) const ROWS: &str = "rows";
pub(crate) const SPEED: &str = "messages/s";
pub(crate) const RELAY_CPU: &str = "relay, CPU s per 100 k";
pub(crate) const POSTGRES_CPU: &str = "PostgreSQL, CPU s per 100 k";
pub(crate) const BROKER_CPU: &str = "brokers, CPU s per 100 k";
pub(crate) const MEMORY: &str = "relay, peak MiB";
pub(crate) const WAL: &str = "WAL bytes per message";
pub(crate) const DEAD_TUPLES: &str = "dead tuples per message";

/// How an arm with a sink is called in the figures.
pub(crate) fn subject(arm: &str, sink: SinkKind) -> String {
    format!("{arm} → {}", sink.title())
}

/// Lets the arms take turns; all of them if none is named.
pub(crate) async fn run(bench: &Bench, sinks: &[SinkKind], only: &[String], results: &mut Results) {
    let is_wanted = |arm: &Arm| only.is_empty() || only.iter().any(|name| name == arm.name);
    let mut drains = Vec::new();
    for sink in sinks {
        let arms = arm::all().into_iter().filter(is_wanted);
        drains.extend(
            arms.filter(|arm| arm.takes(*sink != SinkKind::Null))
                // One peer in the place where both were built for.
                .filter(|arm| arm.how != How::Debezium || *sink == SinkKind::Kafka)
                .map(|arm| Drain::new(arm, *sink, rows(bench.extent, &arm, *sink))),
        );
    }
    if bench.debezium.is_none() {
        drains.retain(|drain| drain.arm.how != How::Debezium);
    }
    if sinks.contains(&SinkKind::Kafka) {
        warm_up(bench, results).await;
    }
    for round in 0..bench.extent.rounds {
        for drain in shuffled(&drains) {
            match bench.drain(drain).await {
                Ok(measured) => add(results, drain, round, &measured),
                Err(error) => results.void(&error),
            }
        }
    }
}

/// Brokers that were just started compile what they run: who came first would pay for it.
async fn warm_up(bench: &Bench, results: &mut Results) {
    let producer = arm::find("floor-produce").expect("an arm of ours");
    let drain = Drain::new(producer, SinkKind::Kafka, bench.extent.pick(100_000, 600_000));
    if let Err(error) = bench.drain(&drain).await {
        results.void(&error.context("warming up the brokers"));
    }
}

/// Enough to take a second or more, and no more than the mock keeps.
fn rows(extent: Extent, arm: &Arm, sink: SinkKind) -> u32 {
    match sink {
        // As many as the log that it is compared with: what does not depend on their number weighs the same in both.
        SinkKind::Kafka if arm.how == How::Debezium => extent.pick(20_000, 300_000),
        SinkKind::Null if arm.is_fast() => extent.pick(100_000, 1_000_000),
        SinkKind::Kafka if arm.is_fast() => extent.pick(20_000, 300_000),
        SinkKind::Mock if arm.is_fast() => extent.pick(20_000, 150_000),
        _ => extent.pick(20_000, 60_000),
    }
}

fn add(results: &mut Results, drain: &Drain, round: u32, measured: &Measured) {
    let subject = subject(drain.arm.name, drain.sink);
    progress(&format!(
        "drain, {subject}: {:.0} messages/s",
        measured.messages_per_second
    ));
    let per_100k = |cpu| Measured::per_100k(cpu, &drain.workload);
    for (measure, value) in [
        (ROWS, f64::from(drain.workload.rows)),
        (SPEED, measured.messages_per_second),
        (RELAY_CPU, per_100k(measured.relay_cpu)),
        (POSTGRES_CPU, per_100k(measured.postgres_cpu)),
        (BROKER_CPU, per_100k(measured.broker_cpu)),
        (MEMORY, measured.memory_mib()),
        (WAL, measured.wal_per_message),
        (DEAD_TUPLES, measured.dead_tuples_per_message),
    ] {
        results.add((SUITE, &subject, measure), round, value);
    }
}
