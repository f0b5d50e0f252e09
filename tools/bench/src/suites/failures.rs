//! The log beside what an outbox has after some weeks: dead letters, messages for later, a transaction that somebody left open.

use crate::arm;
use crate::bench::Bench;
use crate::beside::Beside;
use crate::brokers::SinkKind;
use crate::results::{Results, progress};
use crate::run::Drain;
use crate::suites::drain::SPEED;

pub(crate) const SUITE: &str = "failures";

pub(crate) fn subject(beside: Beside) -> String {
    format!("log, {}", beside.title())
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    for round in 0..bench.extent.rounds {
        for beside in [
            Beside::Nothing,
            Beside::DeadLetters,
            Beside::Waiting,
            Beside::OpenTransaction,
        ] {
            let arm = arm::find("log").expect("an arm of ours");
            let drain = Drain {
                beside,
                ..Drain::new(arm, SinkKind::Null, bench.extent.pick(100_000, 500_000))
            };
            match bench.drain(&drain).await {
                Ok(measured) => {
                    let (subject, speed) = (subject(beside), measured.messages_per_second);
                    progress(&format!("failures, {subject}: {speed:.0} messages/s"));
                    results.add((SUITE, &subject, SPEED), round, speed);
                }
                Err(error) => results.void(&error),
            }
        }
    }
}
