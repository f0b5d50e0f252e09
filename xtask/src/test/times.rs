//! How long tests take.
//!
//! The test harness of a stable Rust says when a test ended and not when it began. But it begins tests in the order of
//! their names, and the next one whenever another ends, so that the beginnings can be worked out from the ends.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    env, fmt,
    num::NonZero,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How many of the slowest tests are shown.
const SLOWEST: usize = 10;
pub(super) const THREADS: &str = "RUST_TEST_THREADS";

/// What was measured in one run of all programs.
#[derive(Debug, Default)]
pub(super) struct Times {
    tests: Vec<(String, Duration)>,
    suites: BTreeMap<String, Total>,
}

#[derive(Debug, Default)]
struct Total {
    tests: usize,
    took: Duration,
}

impl Times {
    /// Adds what one program took. Its tests are named with `program` in front.
    pub(super) fn add(&mut self, suite: &str, program: &str, run: ProgramRun) {
        let total = self.suites.entry(suite.to_owned()).or_default();
        total.tests += run.tests.len();
        total.took += run.took;
        let tests = run.tests.into_iter();
        self.tests
            .extend(tests.map(|(test, took)| (format!("{test} ({program})"), took)));
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Suites")?;
        let width = self.suites.keys().map(String::len).max().unwrap_or(0);
        for (name, Total { tests, took }) in &self.suites {
            writeln!(f, "  {name:width$}  {tests:5} tests  {:6.1} s", took.as_secs_f64())?;
        }
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by_key(|(_, took)| Reverse(*took));
        writeln!(f, "\nThe slowest tests")?;
        for (test, took) in tests.into_iter().take(SLOWEST) {
            writeln!(f, "  {:6.1} s  {test}", took.as_secs_f64())?;
        }
        Ok(())
    }
}

/// One program's tests, each with its time, and the time of all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramRun {
    tests: Vec<(String, Duration)>,
    took: Duration,
}

/// Notes when the tests of one program end.
#[derive(Debug)]
pub(super) struct Stopwatch {
    begun: Instant,
    ended: Vec<(String, Instant)>,
}

impl Stopwatch {
    pub(super) fn start(now: Instant) -> Self {
        Self {
            begun: now,
            ended: Vec::new(),
        }
    }

    /// Hears a line such as `test run::stops ... ok`.
    pub(super) fn hear(&mut self, line: &str, now: Instant) {
        if let Some((test, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let test = test.strip_suffix(" - should panic").unwrap_or(test);
            self.ended.push((test.to_owned(), now));
        }
    }

    /// What each took, when `threads` of them ran at a time.
    pub(super) fn stop(self, threads: usize, now: Instant) -> ProgramRun {
        let mut waiting: Vec<&str> = self.ended.iter().map(|(test, _)| test.as_str()).collect();
        waiting.sort_unstable();
        let mut waiting = waiting.into_iter();
        let first = waiting.by_ref().take(threads).map(|test| (test, self.begun));
        let mut begun: HashMap<&str, Instant> = first.collect();
        begun.extend(waiting.zip(self.ended.iter().map(|(_, at)| *at)));
        let took = |(test, at): &(String, Instant)| {
            let begun = begun.get(test.as_str()).copied().unwrap_or(*at);
            (test.clone(), at.saturating_duration_since(begun))
        };
        ProgramRun {
            tests: self.ended.iter().map(took).collect(),
            took: now.saturating_duration_since(self.begun),
        }
    }
}

/// How many tests a command runs at a time.
pub(super) fn threads(tests: &Command) -> usize {
    let words: Vec<_> = tests.get_args().map(|word| word.to_string_lossy()).collect();
    let by_argument = words.iter().enumerate().find_map(|(place, word)| {
        let value = match word.strip_prefix("--test-threads")? {
            "" => words.get(place + 1)?.as_ref(),
            value => value.strip_prefix('=')?,
        };
        value.parse().ok()
    });
    let by_environment = || {
        let of_command = tests.get_envs().find(|(name, _)| *name == THREADS);
        let value = of_command.map_or_else(|| env::var_os(THREADS), |(_, value)| value.map(Into::into));
        value?.to_str()?.parse().ok()
    };
    by_argument
        .or_else(by_environment)
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// `a` and `b` begin at once, `c` when `b` ends, `d` when `c` ends.
    #[test]
    fn a_test_begins_when_another_ends() {
        let begun = Instant::now();
        let mut watch = Stopwatch::start(begun);
        for (line, at) in [
            ("test b ... ok", 2),
            ("test m::c - should panic ... ok", 3),
            ("test a has been running for over 60 seconds", 4),
            ("test a ... FAILED", 9),
            ("test n::d ... ignored, slow", 10),
        ] {
            watch.hear(line, begun + seconds(at));
        }
        let run = watch.stop(2, begun + seconds(11));
        let took: Vec<_> = run
            .tests
            .iter()
            .map(|(test, took)| (test.as_str(), took.as_secs()))
            .collect();
        assert_eq!(took, [("b", 2), ("m::c", 1), ("a", 9), ("n::d", 7)]);
        assert_eq!(run.took, seconds(11));
    }

    #[test]
    fn the_slowest_come_first_and_suites_are_summed_up() {
        let run = |names: &[&str], took: u64| ProgramRun {
            tests: names.iter().map(|name| ((*name).to_owned(), seconds(took))).collect(),
            took: seconds(took),
        };
        let mut times = Times::default();
        times.add("core", "relay", run(&["a"], 1));
        times.add("core", "sql", run(&["b", "c"], 3));
        let names: Vec<_> = (0..SLOWEST).map(|n| format!("t{n}")).collect();
        times.add(
            "cli",
            "cli",
            run(&names.iter().map(String::as_str).collect::<Vec<_>>(), 5),
        );
        let shown = times.to_string();
        assert!(shown.contains("\n  core      3 tests     4.0 s\n"), "{shown}");
        assert!(shown.contains("\n     5.0 s  t0 (cli)\n"), "{shown}");
        assert!(!shown.contains("(sql)"), "{shown}");
    }

    #[test]
    fn the_number_of_threads_is_what_the_tests_are_told() {
        let mut tests = Command::new("tests");
        tests.env(THREADS, "7");
        assert_eq!(threads(&tests), 7);
        assert_eq!(threads(tests.args(["--test-threads", "3"])), 3);
        assert_eq!(threads(Command::new("tests").arg("--test-threads=2")), 2);
    }
}
