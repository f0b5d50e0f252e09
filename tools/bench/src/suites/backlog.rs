//! A large backlog beside a small one: rows that wait must not slow down those that go.

use crate::arm;
use crate::bench::Bench;
use crate::brokers::SinkKind;
use crate::results::Results;
use crate::run::Drain;
use crate::suites::rounds;

pub(crate) const SUITE: &str = "backlog";
const SMALL: u32 = 10_000;

pub(crate) fn subject(arm: &str, is_large: bool) -> String {
    format!("{arm}, {} backlog", if is_large { "large" } else { "small" })
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    // The queue would take half an hour for the large one.
    let arms = [
        ("log", bench.extent.pick(200_000, 5_000_000)),
        ("queue", bench.extent.pick(50_000, 500_000)),
    ];
    let mut drains = Vec::new();
    for (name, large) in arms {
        let arm = arm::find(name).expect("an arm of ours");
        for rows in [SMALL, large] {
            drains.push((subject(name, rows == large), Drain::new(arm, SinkKind::Null, rows)));
        }
    }
    rounds::run(bench, SUITE, &drains, results).await;
}
