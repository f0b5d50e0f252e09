//! Throughput while a snapshot from before the rows stays open, so that the server can remove nothing.

use crate::arm;
use crate::bench::Bench;
use crate::beside::Beside;
use crate::brokers::SinkKind;
use crate::results::{Results, progress};
use crate::run::Drain;
use crate::suites::drain::SPEED;

pub(crate) const SUITE: &str = "snapshot";

pub(crate) fn subject(arm: &str, beside: Beside) -> String {
    format!("{arm}, {}", beside.title())
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    let arms = [
        ("log", bench.extent.pick(100_000, 1_000_000)),
        ("queue", bench.extent.pick(20_000, 150_000)),
    ];
    for round in 0..bench.extent.rounds {
        for (name, rows) in arms {
            for beside in [Beside::Nothing, Beside::Snapshot] {
                let arm = arm::find(name).expect("an arm of ours");
                let drain = Drain {
                    beside,
                    ..Drain::new(arm, SinkKind::Null, rows)
                };
                match bench.drain(&drain).await {
                    Ok(measured) => {
                        let (subject, speed) = (subject(name, beside), measured.messages_per_second);
                        progress(&format!("snapshot, {subject}: {speed:.0} messages/s"));
                        results.add((SUITE, &subject, SPEED), round, speed);
                    }
                    Err(error) => results.void(&error),
                }
            }
        }
    }
}
