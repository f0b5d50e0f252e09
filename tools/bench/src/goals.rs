//! What the figures are held to.

use serde::Serialize;

use crate::brokers::SinkKind;
use crate::results::Results;
use crate::series::Series;
use crate::suites::{backlog, business, drain, enqueue, kill, latency, open_transaction, snapshot};
use crate::worker::LOG_IN_FLIGHT;

/// One goal, and how far it is reached.
#[derive(Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    /// The median; none if it was not measured, or does not count.
    pub(crate) measured: Option<f64>,
    pub(crate) spread: Option<(f64, f64)>,
    pub(crate) reached: Option<bool>,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn new(what: impl Into<String>, limit: Limit, measured: Option<Series>) -> Self {
        let median = measured.as_ref().and_then(Series::median);
        let spread = measured.as_ref().and_then(Series::spread);
        let reached = median.map(|median| match limit {
            Limit::AtLeast(limit) => median >= limit,
            Limit::AtMost(limit) => median <= limit,
        });
        Self {
            what: what.into(),
            limit,
            measured: median,
            spread,
            reached,
        }
    }
}

/// All goals.
pub(crate) fn all(results: &Results) -> Vec<Goal> {
    use Limit::{AtLeast, AtMost};
    use SinkKind::{Kafka, Mock, Null};
    let of_drain = |arm: &str, sink, measure| results.find(drain::SUITE, &drain::subject(arm, sink), measure).cloned();
    let speed = |arm: &str, sink| of_drain(arm, sink, drain::SPEED);
    let faster = |arm: &str, other: &str, sink| ratio(speed(arm, sink), speed(other, sink));
    let log = |measure, sink| of_drain("log", sink, measure);
    let other = |suite, subject: String, measure| results.find(suite, &subject, measure).cloned();
    let mut goals = vec![
        Goal::new(
            "log → null, of the bare SELECT",
            AtLeast(0.6),
            faster("log", "floor-select", Null),
        ),
        Goal::new(
            "log → Kafka mock, of bare SELECT and producer",
            AtLeast(0.7),
            faster("log", "floor-both", Mock),
        ),
        Goal::new(
            "log → Kafka, of bare SELECT and producer",
            AtLeast(0.7),
            faster("log", "floor-both", Kafka),
        ),
    ];
    for sink in [Null, Mock, Kafka] {
        let to = sink.title();
        goals.push(Goal::new(
            format!("log → {to}, times our queue"),
            AtLeast(4.0),
            faster("log", "queue", sink),
        ));
        for (poller, name) in [("a-poller", "A"), ("e-poller", "E")] {
            goals.push(Goal::new(
                format!("log → {to}, times the status poller of {name}"),
                AtLeast(20.0),
                faster("log", poller, sink),
            ));
        }
    }
    goals.extend([
        Goal::new(
            "log → Kafka, times Debezium Server: messages per CPU second",
            AtLeast(8.0),
            ratio(
                of_drain("debezium", Kafka, drain::RELAY_CPU),
                log(drain::RELAY_CPU, Kafka),
            ),
        ),
        Goal::new(
            "log → Kafka, times Debezium Server: throughput",
            AtLeast(1.5),
            faster("log", "debezium", Kafka),
        ),
        Goal::new(
            "log → Kafka, CPU seconds of the relay per 100,000",
            AtMost(0.8),
            log(drain::RELAY_CPU, Kafka),
        ),
        Goal::new("log → null, WAL bytes per message", AtMost(2.0), log(drain::WAL, Null)),
        Goal::new(
            "log → null, dead tuples per message",
            AtMost(0.0),
            log(drain::DEAD_TUPLES, Null),
        ),
        Goal::new(
            "log, throughput with a snapshot held, of clean",
            AtLeast(0.95),
            ratio(
                other(snapshot::SUITE, snapshot::subject("log", true), drain::SPEED),
                other(snapshot::SUITE, snapshot::subject("log", false), drain::SPEED),
            ),
        ),
        Goal::new(
            "log, p99 of other keys while a transaction stays open, of clean",
            AtMost(1.5),
            ratio(
                other(
                    open_transaction::SUITE,
                    open_transaction::subject("log", true),
                    latency::P99,
                ),
                other(
                    open_transaction::SUITE,
                    open_transaction::subject("log", false),
                    latency::P99,
                ),
            ),
        ),
        Goal::new(
            "log, business transaction with an enqueue, p50, of without",
            AtMost(1.1),
            ratio(
                other(business::SUITE, business::subject("log", true), business::P50),
                other(business::SUITE, business::subject("log", false), business::P50),
            ),
        ),
        Goal::new(
            "log → Kafka mock, commit to acknowledgement at 30 % load, p50 in ms",
            AtMost(3.0),
            other(latency::SUITE, latency::subject("log", 30), latency::P50),
        ),
        Goal::new(
            "log → Kafka mock, commit to acknowledgement at 30 % load, p99 in ms",
            AtMost(15.0),
            other(latency::SUITE, latency::subject("log", 30), latency::P99),
        ),
        Goal::new(
            "log, drain of a large backlog, of a small one",
            AtLeast(0.9),
            ratio(
                other(backlog::SUITE, backlog::subject("log", true), drain::SPEED),
                other(backlog::SUITE, backlog::subject("log", false), drain::SPEED),
            ),
        ),
        Goal::new(
            "log → Kafka, peak memory in MiB",
            AtMost(96.0),
            log(drain::MEMORY, Kafka),
        ),
        Goal::new(
            "log, repetitions after a kill beside an open transaction (at most those in flight)",
            AtMost(f64::from(LOG_IN_FLIGHT)),
            other(kill::SUITE, "log".to_owned(), kill::REPETITIONS),
        ),
        Goal::new(
            "queue, ordered → null, of a hand-written loop",
            AtLeast(0.8),
            faster("queue", "claim-ack", Null),
        ),
    ]);
    for arm in ["log", "queue"] {
        for size in enqueue::SIZES {
            goals.push(Goal::new(
                format!("{arm}, enqueue of {size} at a time, of a plain insert"),
                AtLeast(0.8),
                ratio(
                    other(enqueue::SUITE, enqueue::subject(arm, size, false), enqueue::SPEED),
                    other(enqueue::SUITE, enqueue::subject(arm, size, true), enqueue::SPEED),
                ),
            ));
        }
    }
    goals
}

fn ratio(ours: Option<Series>, theirs: Option<Series>) -> Option<Series> {
    Some(ours?.relative_to(&theirs?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        let goals = all(&Results::default());
        assert!(goals.iter().all(|goal| goal.reached.is_none()));
    }

    #[test]
    fn a_goal_is_reached_by_the_median_of_the_ratios() {
        let mut results = Results::default();
        for (round, (log, queue)) in (0..).zip([(500.0, 100.0), (100.0, 100.0), (410.0, 100.0)]) {
            results.add(("drain", "log → null", drain::SPEED), round, log);
            results.add(("drain", "queue → null", drain::SPEED), round, queue);
        }
        let goals = all(&results);
        let goal = goals
            .iter()
            .find(|goal| goal.what == "log → null, times our queue")
            .unwrap();
        assert_eq!((goal.measured, goal.reached), (Some(4.1), Some(true)));
    }
}
