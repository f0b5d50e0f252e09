//! A large backlog beside a small one: rows that wait must not slow down those that go.

use crate::arm;
use crate::bench::Bench;
use crate::brokers::SinkKind;
use crate::results::{Results, progress};
use crate::run::Drain;
use crate::suites::drain::SPEED;

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
    for round in 0..bench.extent.rounds {
        for (name, large) in arms {
            let arm = arm::find(name).expect("an arm of ours");
            for rows in [SMALL, large] {
                let drain = Drain::new(arm, SinkKind::Null, rows);
                match bench.drain(&drain).await {
                    Ok(measured) => {
                        let speed = measured.messages_per_second;
                        progress(&format!("backlog, {name}, {rows} rows: {speed:.0} messages/s"));
                        results.add((SUITE, &subject(name, rows == large), SPEED), round, speed);
                    }
                    Err(error) => results.void(&error),
                }
            }
        }
    }
}
