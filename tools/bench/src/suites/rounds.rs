//! Drains whose speeds are compared with each other.

use crate::bench::Bench;
use crate::results::{Results, progress};
use crate::run::Drain;
use crate::shuffled::shuffled;
use crate::suites::drain::SPEED;

/// Measures each of them once in every round, in random order.
pub(super) async fn run(bench: &Bench, suite: &'static str, drains: &[(String, Drain)], results: &mut Results) {
    for (subject, _) in drains {
        results.announce((suite, subject, SPEED));
    }
    for round in 0..bench.extent.rounds {
        for (subject, drain) in shuffled(drains) {
            match bench.drain(drain).await {
                Ok(measured) => {
                    let speed = measured.messages_per_second;
                    progress(&format!("{suite}, {subject}: {speed:.0} messages/s"));
                    results.add((suite, subject, SPEED), round, speed);
                }
                Err(error) => results.void(&error),
            }
        }
    }
}
