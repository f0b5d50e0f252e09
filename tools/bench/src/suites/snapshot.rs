//! Throughput while a snapshot from before the rows stays open, so that the server can remove nothing.

use crate::arm;
use crate::bench::Bench;
use crate::beside::Beside;
use crate::brokers::SinkKind;
use crate::results::Results;
use crate::run::Drain;
use crate::suites::rounds;

pub(crate) const SUITE: &str = "snapshot";

pub(crate) fn subject(arm: &str, beside: Beside) -> String {
    format!("{arm}, {}", beside.title())
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    let arms = [
        ("log", bench.extent.pick(100_000, 1_000_000)),
        ("queue", bench.extent.pick(20_000, 150_000)),
    ];
    let mut drains = Vec::new();
    for (name, rows) in arms {
        let arm = arm::find(name).expect("an arm of ours");
        for beside in [Beside::Nothing, Beside::Snapshot] {
            let drain = Drain {
                beside,
                ..Drain::new(arm, SinkKind::Null, rows)
            };
            drains.push((subject(name, beside), drain));
        }
    }
    rounds::run(bench, SUITE, &drains, results).await;
}
