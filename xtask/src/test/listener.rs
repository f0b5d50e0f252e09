//! Reads what tests print.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    failures::Failure,
    times::{ProgramRun, Stopwatch},
};

/// How much of what a failed test said is kept: its beginning, where the reason stands.
const LINES: usize = 20;

/// Hears the lines of `cargo test`, or of one program with tests.
#[derive(Debug)]
pub(super) struct Listener {
    heard: Heard,
    /// Whose lines these are. None for examples in the documentation.
    program: Option<PathBuf>,
    /// How many of its tests run at a time.
    threads: usize,
    /// Runs while tests were begun whose result was not said yet.
    watch: Option<Stopwatch>,
    part: Part,
    /// What each failed test of this program said.
    sections: Vec<(String, Vec<String>)>,
    /// Whether the last of them goes on.
    talks: bool,
    /// The failed tests of this program.
    names: Vec<String>,
}

/// What became of the tests.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) failures: Vec<Failure>,
    /// Programs that ended without a result: crashed, or killed.
    pub(super) unfinished: Vec<String>,
    /// What each program took.
    pub(super) runs: Vec<(Option<PathBuf>, ProgramRun)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Tests,
    /// After `failures:`, which stands before what the tests said and once more before their names.
    Failures,
}

impl Listener {
    pub(super) fn new(program: &Path, threads: usize) -> Self {
        Self {
            heard: Heard::default(),
            program: Some(program.to_owned()),
            threads,
            watch: None,
            part: Part::Tests,
            sections: Vec::new(),
            talks: false,
            names: Vec::new(),
        }
    }

    pub(super) fn hear(&mut self, line: &str) {
        let line = line.trim_end_matches(['\r', '\n']);
        if let Some(program) = started(line) {
            self.begin(Some(program));
        } else if line.starts_with("   Doc-tests ") {
            self.begin(None);
        } else if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.watch = Some(Stopwatch::start(Instant::now()));
        } else if line.starts_with("test result: ") {
            self.result();
        } else if line == "failures:" {
            self.part = Part::Failures;
            self.talks = false;
            // Some of what a test said may have looked like names.
            self.names.clear();
        } else if self.part == Part::Failures {
            self.failure(line);
        } else if let Some(watch) = &mut self.watch {
            watch.hear(line, Instant::now());
        }
    }

    pub(super) fn end(mut self) -> Heard {
        self.begin(None);
        self.heard
    }

    fn begin(&mut self, program: Option<PathBuf>) {
        if self.watch.is_some() {
            let whose = self
                .program
                .as_deref()
                .map_or_else(|| "examples".into(), Path::to_string_lossy);
            let problem = format!("{whose} ended without a result");
            self.heard.unfinished.push(problem);
        }
        self.program = program;
        self.clear();
    }

    fn failure(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" ----")) {
            let test = test.strip_suffix(" stdout").unwrap_or(test);
            self.sections.push((test.to_owned(), Vec::new()));
            self.talks = true;
            return;
        }
        if let Some(name) = line.strip_prefix("    ") {
            self.names.push(name.to_owned());
        }
        if line == "stack backtrace:" {
            self.talks = false;
        }
        if let Some((_, said)) = self.sections.last_mut()
            && self.talks
            && !line.is_empty()
            && said.len() < LINES
        {
            said.push(line.to_owned());
        }
    }

    fn result(&mut self) {
        if let Some(watch) = self.watch.take() {
            let run = watch.stop(self.threads, Instant::now());
            self.heard.runs.push((self.program.clone(), run));
        }
        for test in std::mem::take(&mut self.names) {
            let section = self.sections.iter().find(|(name, _)| *name == test);
            self.heard.failures.push(Failure {
                program: self.program.clone(),
                whose: None,
                said: section.map_or_else(Vec::new, |(_, said)| said.clone()),
                test,
            });
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.watch = None;
        self.part = Part::Tests;
        self.talks = false;
        self.sections.clear();
        self.names.clear();
    }
}

/// The program in `     Running tests/cli/main.rs (target/debug/deps/cli-99661d985f384353)`.
fn started(line: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix("     Running ")?;
    let (_, program) = rest.strip_suffix(')')?.rsplit_once('(')?;
    Some(program.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Heard {
        let mut listener = Listener::new(Path::new("cargo"), 2);
        text.lines().for_each(|line| listener.hear(line));
        listener.end()
    }

    #[test]
    fn failed_tests_are_found_with_their_program_and_words() {
        let heard = heard(
            "     Running tests/drive.rs (target/debug/deps/drive-1)

running 1 test
test fine ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s

     Running tests/cli/main.rs (target/debug/deps/cli-2)

running 3 tests
test run::stops ... FAILED
test run::goes ... ok
test run::waits ... FAILED

failures:

---- run::stops stdout ----

thread 'run::stops' (27672) panicked at crates/posthaste-cli/tests/cli/run.rs:213:5:
    indented words
stack backtrace:
   0: __rustc::rust_begin_unwind
---- run::waits stdout ----
Error: \"too late\"


failures:
    run::stops
    run::waits

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 114.27s

error: 1 target failed:
    `-p posthaste-cli --test cli`
",
        );
        assert_eq!(heard.unfinished, [""; 0]);
        let programs: Vec<_> = heard
            .runs
            .iter()
            .filter_map(|(program, _)| program.as_deref())
            .collect();
        assert_eq!(
            programs,
            ["target/debug/deps/drive-1", "target/debug/deps/cli-2"].map(Path::new)
        );
        let [stops, waits] = &heard.failures[..] else {
            panic!("{heard:?}");
        };
        assert_eq!(stops.program.as_deref(), Some(Path::new("target/debug/deps/cli-2")));
        assert_eq!((stops.test.as_str(), stops.said.len()), ("run::stops", 2));
        assert_eq!(
            (waits.test.as_str(), &waits.said[..]),
            ("run::waits", &["Error: \"too late\"".to_owned()][..])
        );
    }

    #[test]
    fn a_program_without_a_result_is_not_forgotten() {
        let text = "     Running tests/a.rs (target/a-1)\nrunning 5 tests\ntest x ... ok\n     \
                    Running tests/b.rs (target/b-1)\nrunning 0 tests\ntest result: ok. 0 passed\n";
        assert_eq!(heard(text).unfinished, ["target/a-1 ended without a result"]);
    }

    #[test]
    fn an_example_that_fails_has_no_program() {
        let text = "   Doc-tests posthaste\nrunning 1 test\n\nfailures:\n    src/lib.rs - (line 3)\n\n\
                    test result: FAILED. 0 passed\n";
        let heard = heard(text);
        assert_eq!(heard.failures[0].program, None);
        assert_eq!(heard.failures[0].test, "src/lib.rs - (line 3)");
    }
}
