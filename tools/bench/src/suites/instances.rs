//! One, two and four relays that share an outbox; a log has a shard for each of the four.

use crate::arm;
use crate::bench::Bench;
use crate::brokers::SinkKind;
use crate::layout::{self, Layout};
use crate::results::Results;
use crate::run::Drain;
use crate::suites::rounds;

pub(crate) const SUITE: &str = "instances";

pub(crate) fn subject(arm: &str, instances: u32) -> String {
    format!("{arm}, {instances} instances")
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    // A mapped log has one reader at a time.
    let log = layout::native_log().map(|_| "log");
    if log.is_none() {
        results
            .not_run
            .push("instances: a mapped log has one reader".to_owned());
    }
    let mut drains = Vec::new();
    for name in ["queue"].into_iter().chain(log) {
        let arm = arm::find(name).expect("an arm of ours");
        for instances in [1, 2, 4] {
            let drain = Drain {
                instances,
                shards: if arm.layout == Layout::NativeLog { 4 } else { 1 },
                ..Drain::new(arm, SinkKind::Mock, bench.extent.pick(20_000, 150_000))
            };
            drains.push((subject(name, instances), drain));
        }
    }
    rounds::run(bench, SUITE, &drains, results).await;
}
