//! What the figures are held to.

use serde::Serialize;

use crate::beside::Beside;
use crate::brokers::SinkKind::{self, Kafka, Mock, Null};
use crate::results::Results;
use crate::series::Series;
use crate::suites::business::Fourth;
use crate::suites::{backlog, business, drain, enqueue, failures, kill, latency, open_transaction, snapshot};
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
    /// None: it is there for comparison with the goal before it.
    None,
}

impl Goal {
    fn new(what: impl Into<String>, limit: Limit, measured: Option<Series>) -> Self {
        let (median, spread) = measured.map_or((None, None), |series| (series.median(), series.spread()));
        let reached = median.and_then(|median| match limit {
            Limit::AtLeast(limit) => Some(median >= limit),
            Limit::AtMost(limit) => Some(median <= limit),
            Limit::None => None,
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
    let mut goals = Goals {
        results,
        goals: Vec::new(),
    };
    goals.throughput();
    goals.costs();
    goals.disturbances();
    goals.latency();
    goals.enqueueing();
    goals.goals
}

struct Goals<'a> {
    results: &'a Results,
    goals: Vec<Goal>,
}

impl Goals<'_> {
    fn throughput(&mut self) {
        let speed = drain::SPEED;
        self.at_least(
            "log → null, of the bare SELECT",
            0.6,
            self.log_to(Null, speed, "floor-select"),
        );
        for sink in [Mock, Kafka] {
            let what = format!("log → {}, of bare SELECT and producer", sink.title());
            self.at_least(what, 0.7, self.log_to(sink, speed, "floor-both"));
        }
        for sink in [Null, Mock, Kafka] {
            let to = sink.title();
            self.at_least(
                format!("log → {to}, times our queue"),
                4.0,
                self.log_to(sink, speed, "queue"),
            );
            for (poller, name) in [("a-poller", "A"), ("e-poller", "E")] {
                let what = format!("log → {to}, times the status poller of {name}");
                self.at_least(what, 20.0, self.log_to(sink, speed, poller));
            }
        }
        let ratio = self.log_to(Kafka, speed, "debezium");
        self.at_least("log → Kafka, times Debezium Server: throughput", 1.5, ratio);
        let ratio = ratio_of(self.drain("queue", Null, speed), self.drain("claim-ack", Null, speed));
        self.at_least("queue, ordered → null, of a hand-written loop", 0.8, ratio);
    }

    fn costs(&mut self) {
        let cpu = drain::RELAY_CPU;
        let ratio = ratio_of(self.drain("debezium", Kafka, cpu), self.drain("log", Kafka, cpu));
        let what = "log → Kafka, times Debezium Server: messages per CPU second";
        self.at_least(what, 8.0, ratio);
        let of_log = |sink, measure| self.drain("log", sink, measure).cloned();
        let (cpu, memory) = (of_log(Kafka, cpu), of_log(Kafka, drain::MEMORY));
        let (wal, dead) = (of_log(Null, drain::WAL), of_log(Null, drain::DEAD_TUPLES));
        self.at_most("log → Kafka, CPU seconds of the relay per 100,000", 0.8, cpu);
        self.at_most("log → Kafka, peak memory in MiB", 96.0, memory);
        self.at_most("log → null, WAL bytes per message", 2.0, wal);
        self.at_most("log → null, dead tuples per message", 0.0, dead);
    }

    fn disturbances(&mut self) {
        let ratio = self.ratio(snapshot::SUITE, drain::SPEED, |held| {
            snapshot::subject("log", if held { Beside::Snapshot } else { Beside::Nothing })
        });
        self.at_least("log, throughput with a snapshot held, of clean", 0.95, ratio);
        for (beside, limit) in [(Beside::DeadLetters, 0.9), (Beside::Waiting, 0.5)] {
            let ratio = self.ratio(failures::SUITE, drain::SPEED, |is_beside| {
                failures::subject(if is_beside { beside } else { Beside::Nothing })
            });
            self.at_least(
                format!("log, throughput beside {}, of clean", beside.title()),
                limit,
                ratio,
            );
        }
        let ratio = self.ratio(backlog::SUITE, drain::SPEED, |large| backlog::subject("log", large));
        self.at_least("log, drain of a large backlog, of a small one", 0.9, ratio);
        let ratio = self.ratio(open_transaction::SUITE, latency::P99, |open| {
            open_transaction::subject("log", open)
        });
        let what = "log, p99 of other keys while a transaction stays open, of clean";
        self.at_most(what, 1.5, ratio);
        let repetitions = self.results.find(kill::SUITE, "log", kill::REPETITIONS).cloned();
        let what = "log, repetitions after a kill beside an open transaction (at most those in flight)";
        self.at_most(what, f64::from(LOG_IN_FLIGHT), repetitions);
        let share = self.results.find(kill::SUITE, kill::LOG_AT_FULL_SPEED, kill::OF_BOUND);
        let what = "log, repetitions after a kill at full speed, of those in flight and those settled since the last checkpoint";
        self.at_most(what, 1.0, share.cloned());
    }

    fn latency(&mut self) {
        let subject = latency::subject("log", 30);
        for (measure, limit) in [(latency::P50, 3.0), (latency::P99, 15.0)] {
            let what = format!("log → Kafka mock, commit to acknowledgement at 30 % load, {measure}");
            let measured = self.results.find(latency::SUITE, &subject, measure).cloned();
            self.at_most(what, limit, measured);
        }
    }

    fn enqueueing(&mut self) {
        let ratio = self.business(Fourth::Enqueue, Fourth::Nothing);
        let what = "log, business transaction with an enqueue, p50, of without";
        self.at_most(what, 1.1, ratio);
        let ratio = self.business(Fourth::RoundTrip, Fourth::Nothing);
        self.for_comparison("log, the same with an empty statement instead, of without", ratio);
        let ratio = self.business(Fourth::PlainInsert, Fourth::Nothing);
        self.for_comparison("log, the same with a plain insert instead, of without", ratio);
        let ratio = self.business(Fourth::Enqueue, Fourth::PlainInsert);
        self.for_comparison("log, the same with an enqueue, of with a plain insert", ratio);
        for arm in ["log", "queue"] {
            for size in enqueue::SIZES {
                let ratio = self.ratio(enqueue::SUITE, enqueue::SPEED, |ours| {
                    enqueue::subject(arm, size, !ours)
                });
                let what = format!("{arm}, enqueue of {size} at a time, of a plain insert");
                self.at_least(what, 0.8, ratio);
            }
        }
        let (arm, size) = (enqueue::SHARDED, enqueue::SHARDED_SIZE);
        let ratio = self.ratio(enqueue::SUITE, enqueue::SPEED, |ours| {
            enqueue::subject(arm, size, !ours)
        });
        let what = format!("{arm}, enqueue of {size} at a time, of a plain insert");
        self.for_comparison(&what, ratio);
    }

    fn at_least(&mut self, what: impl Into<String>, limit: f64, measured: Option<Series>) {
        self.goals.push(Goal::new(what, Limit::AtLeast(limit), measured));
    }

    fn at_most(&mut self, what: impl Into<String>, limit: f64, measured: Option<Series>) {
        self.goals.push(Goal::new(what, Limit::AtMost(limit), measured));
    }

    fn for_comparison(&mut self, what: &str, measured: Option<Series>) {
        self.goals.push(Goal::new(what, Limit::None, measured));
    }

    /// The log's business transaction with one ending, of that with another.
    fn business(&self, ours: Fourth, theirs: Fourth) -> Option<Series> {
        let of = |fourth| {
            let subject = business::subject("log", fourth);
            self.results.find(business::SUITE, &subject, business::P50)
        };
        ratio_of(of(ours), of(theirs))
    }

    fn drain(&self, arm: &str, sink: SinkKind, measure: &str) -> Option<&Series> {
        self.results.find(drain::SUITE, &drain::subject(arm, sink), measure)
    }

    /// The log's drain, of another arm's.
    fn log_to(&self, sink: SinkKind, measure: &str, other: &str) -> Option<Series> {
        ratio_of(self.drain("log", sink, measure), self.drain(other, sink, measure))
    }

    /// The figure of the subject for `true`, of that for `false`.
    fn ratio(&self, suite: &str, measure: &str, subject: impl Fn(bool) -> String) -> Option<Series> {
        let of = |which| self.results.find(suite, &subject(which), measure);
        ratio_of(of(true), of(false))
    }
}

fn ratio_of(ours: Option<&Series>, theirs: Option<&Series>) -> Option<Series> {
    Some(ours?.relative_to(theirs?))
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
