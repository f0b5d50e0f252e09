//! The log beside what an outbox has after some weeks: dead letters, messages for later, a transaction that somebody left open.

use crate::arm;
use crate::bench::Bench;
use crate::beside::Beside;
use crate::brokers::SinkKind;
use crate::results::Results;
use crate::run::Drain;
use crate::suites::rounds;

pub(crate) const SUITE: &str = "failures";

pub(crate) fn subject(beside: Beside) -> String {
    format!("log, {}", beside.title())
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    let arm = arm::find("log").expect("an arm of ours");
    let rows = bench.extent.pick(100_000, 500_000);
    let drains = [
        Beside::Nothing,
        Beside::DeadLetters,
        Beside::Waiting,
        Beside::OpenTransaction,
    ];
    let drains = drains.map(|beside| {
        let drain = Drain {
            beside,
            ..Drain::new(arm, SinkKind::Null, rows)
        };
        (subject(beside), drain)
    });
    rounds::run(bench, SUITE, &drains, results).await;
}
