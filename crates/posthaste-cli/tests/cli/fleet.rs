//! Several relay processes on one table: one of them counts and cleans up, and another one follows when it dies.

use nix::sys::signal::Signal;

use crate::probes;
use crate::support::{Background, Place, TO_STDOUT, eventually, on_every_database};

on_every_database!(
    one_relay_of_a_fleet_counts_and_the_next_takes_over,
    a_fleet_removes_what_is_old_as_fast_as_it_comes_and_nothing_else,
    dead_messages_are_removed_only_where_that_is_said_and_each_is_named,
);

/// A round is short, so that a case is too.
const ROUNDS: [&str; 2] = ["--set", "relay.janitor_interval=200ms"];

/// A relay process, with the port of its figures.
pub struct Member {
    process: Background,
    port: u16,
}

impl Member {
    /// The sum of the series of a name whose labels contain a text; nothing if there is none, or no answer.
    pub fn figure(&self, name: &str, label: &str) -> Option<u64> {
        let (_, figures) = probes::get(self.port, "/metrics")?;
        let series = figures.lines().filter_map(|line| line.rsplit_once(' '));
        let values = series
            .filter(|(key, _)| key.split('{').next() == Some(name) && key.contains(label))
            .filter_map(|(_, value)| value.parse::<u64>().ok());
        values.reduce(|sum, value| sum + value)
    }

    fn is_owner(&self) -> bool {
        self.figure("outbox_upkeep_owner", "namespace") == Some(1)
    }
}

/// Several processes.
pub struct Fleet(pub Vec<Member>);

impl Fleet {
    pub fn start(place: &Place, members: usize, args: &[&str]) -> Self {
        let start = |_| {
            let (process, port) = probes::start(place, &[&ROUNDS, args].concat());
            Member { process, port }
        };
        Self((0..members).map(start).collect())
    }

    /// The sum over all members.
    pub fn sum(&self, name: &str, label: &str) -> u64 {
        self.0.iter().filter_map(|member| member.figure(name, label)).sum()
    }

    fn owners(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|n| self.0[*n].is_owner()).collect()
    }

    /// The one that counts, once there is one and all have answered.
    pub fn owner(&self) -> usize {
        let mut owners = Vec::new();
        eventually("one relay counts", || {
            owners = self.owners();
            owners.len() == 1
                && self
                    .0
                    .iter()
                    .all(|member| member.figure("outbox_upkeep_owner", "").is_some())
        });
        owners[0]
    }
}

/// Whoever counts, the fleet shows what is there once; and after SIGKILL another one does.
pub fn one_counts_and_the_next_takes_over(place: &Place, args: &[&str], gauge: &str, label: &str, expected: u64) {
    let mut fleet = Fleet::start(place, 3, args);
    let first = fleet.owner();
    eventually("the fleet shows what is there", || fleet.sum(gauge, label) == expected);
    for _ in 0..10 {
        assert_eq!(fleet.owners(), [first], "it stays the same one");
        assert_eq!(fleet.sum(gauge, label), expected, "and the others add nothing");
    }
    let mut killed = fleet.0.remove(first);
    killed.process.signal(Signal::SIGKILL);
    killed.process.exit_code();
    let second = fleet.owner();
    eventually("the next one shows it", || fleet.sum(gauge, label) == expected);
    // One that stops cleanly is followed at once: the lease of three seconds need not run out.
    let mut stopped = fleet.0.remove(second);
    stopped.process.signal(Signal::SIGTERM);
    assert_eq!(stopped.process.exit_code(), Some(0));
    fleet.owner();
    eventually("the last one shows it", || fleet.sum(gauge, label) == expected);
}

fn one_relay_of_a_fleet_counts_and_the_next_takes_over(place: &Place) {
    place.run(&["migrate"]).success();
    for topic in ["orders", "orders", "stock"] {
        place.enqueue(&["--topic", topic, "--payload", "1", "--not-before", "1h"]);
    }
    let label = r#"topic="orders""#;
    one_counts_and_the_next_takes_over(place, &TO_STDOUT, "outbox_topic_pending_count", label, 2);
    let fleet = Fleet::start(place, 2, &TO_STDOUT);
    for (gauge, expected) in [("outbox_pending_count", 3), ("outbox_waiting_count", 3)] {
        eventually("the fleet shows what is there", || fleet.sum(gauge, "") == expected);
    }
}

/// Proves A8 and pitfall 16.
fn a_fleet_removes_what_is_old_as_fast_as_it_comes_and_nothing_else(place: &Place) {
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "later", "--payload", "1", "--not-before", "1h"]);
    let to_file = ["--set", "publisher.kind=file", "--set", "publisher.path=events.jsonl"];
    // No slow machine is to lose the lease of three rounds: another one would go on removing.
    let keep = ["--set", "relay.retention=1s", "--set", "relay.janitor_interval=4s"];
    let fleet = Fleet::start(place, 2, &[&to_file[..], &keep].concat());
    let owner = fleet.owner();
    // More than one batch, in several rounds.
    let lines = "{\"topic\": \"a\", \"payload\": 1}\n".repeat(1_500);
    for _ in 0..3 {
        place.run_with_input(&["enqueue", "--stdin"], &lines).success();
    }
    let purged = |n: usize| {
        fleet.0[n]
            .figure("outbox_purged_count", r#"table="outbox""#)
            .unwrap_or(0)
    };
    eventually("all that was delivered is old and removed", || {
        fleet.sum("outbox_purged_count", r#"table="outbox""#) == 4_500
    });
    assert_eq!(purged(1 - owner), 0, "one alone removes");
    assert_eq!(place.status()["waiting"], 1, "what is not delivered stays");
    let left = place.run(&["purge", "--older-than", "0s", "--dry-run"]).success();
    assert_eq!(left.stdout, "would remove 0 rows\n");
}

fn dead_messages_are_removed_only_where_that_is_said_and_each_is_named(place: &Place) {
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "a", "--payload", "1", "--not-before", "1h"]);
    place.sql(&format!("update {} set status = 'dead'", table(place)));
    let short = ["--set", "relay.retention=100ms"];
    let mut fleet = Fleet::start(place, 1, &[&TO_STDOUT[..], &short].concat());
    fleet.owner();
    eventually("it is counted", || fleet.sum("outbox_dead_count", "") == 1);
    place.enqueue(&["--topic", "a", "--payload", "2"]);
    eventually("what was delivered is removed", || {
        fleet.sum("outbox_purged_count", r#"table="outbox""#) == 1
    });
    assert_eq!(place.status()["dead"], 1, "it waits for somebody");
    let mut gone = fleet.0.remove(0);
    gone.process.signal(Signal::SIGTERM);
    gone.process.exit_code();

    place
        .run(&["purge", "--dead", "--older-than", "1ms"])
        .fails_with(&["never delivered", "--yes"]);
    let counted = place.run(&["purge", "--dead", "--older-than", "1ms", "--dry-run", "--json"]);
    assert_eq!(counted.success().json()["tables"]["dead"], 1);
    let dead = ["--set", "relay.dead_retention=1s"];
    let fleet = Fleet::start(place, 1, &[&TO_STDOUT[..], &dead].concat());
    eventually("it is removed", || {
        fleet.sum("outbox_purged_count", r#"table="dead""#) == 1
    });
    assert_eq!(place.status()["dead"], 0);
}

/// The outbox, as the database of the place names it.
fn table(place: &Place) -> &'static str {
    if place.setting("DATABASE__SCHEMA").is_some() {
        "outbox"
    } else {
        "posthaste_outbox"
    }
}
