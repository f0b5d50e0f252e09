//! Which tests failed, and whether they fail alone as well.
//!
//! A run of some thousand tests on a small machine ends with one red test more often than anybody would like, and the
//! reason stands thousands of lines above the end. So the failures stand at the end, with what the tests said. And what
//! failed runs again, alone: whoever reads the list sees at once whether a test fails always or is shaken by its
//! neighbours. A few of the second kind do not fail the run. They are bugs, of the test or of the code, and are named.
//!
//! All of that is bounded: a machine so slow that many tests fail must still come to its end and say so.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    patience::Patience,
    programs::{self, Program},
    runner::Ended,
    times::Times,
};
use crate::process;

/// How often a failed test must pass alone, in a row. One that takes long is tried no more after [`LONG_ALONE`].
const TIMES_ALONE: usize = 5;
const LONG_ALONE: Duration = Duration::from_mins(1);
/// From so many on they are tried alone less often: that takes long, and changes little.
const MANY: usize = 4;

/// A test that failed, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Unknown where it is an example in the documentation.
    pub(super) program: Option<PathBuf>,
    /// What a reader knows the program by.
    pub(super) whose: Option<String>,
    pub(super) test: String,
    pub(super) said: Vec<String>,
}

/// All that failed so far.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Also when run alone.
    lasting: Vec<Failure>,
    /// Not when run alone.
    shaken: Vec<Failure>,
    /// Not yet run alone.
    fresh: Vec<Failure>,
    /// What ended badly without saying which test it was.
    silent: Vec<String>,
}

impl Failures {
    /// Notes what failed, and how long all of it took. `programs` are those that were run; their times count for `suite`,
    /// or else for the suite that each of them belongs to.
    pub(super) fn take(
        &mut self,
        Ended { command, status, heard }: Ended,
        programs: &[Program],
        suite: Option<&str>,
        times: &mut Times,
    ) {
        for (program, run) in heard.runs {
            // The examples in the documentation are compiled in that time.
            let Some(program) = programs::find(programs, program.as_deref()) else {
                continue;
            };
            times.add(suite.unwrap_or_else(|| program.suite()), &program.to_string(), run);
        }
        if !status.success() && heard.failures.is_empty() && heard.unfinished.is_empty() {
            self.silent.push(format!("`{command}` failed: {status}"));
        }
        self.silent.extend(heard.unfinished);
        self.fresh.extend(heard.failures.into_iter().map(|failure| Failure {
            whose: programs::find(programs, failure.program.as_deref()).map(Program::to_string),
            ..failure
        }));
    }

    /// Runs what failed again, alone: several times, unless too many failed for that to change anything.
    pub(super) fn run_alone(
        &mut self,
        programs: &[Program],
        environment: &[(String, String)],
        patience: Patience,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let fresh = std::mem::take(&mut self.fresh);
        let times = if fresh.len() >= MANY { 1 } else { TIMES_ALONE };
        for failure in fresh {
            let mut passes = false;
            if let Some(program) = programs::find(programs, failure.program.as_deref()) {
                for _ in 0..patience.tries {
                    if passes || begun.elapsed() > patience.alone {
                        break;
                    }
                    passes = passes_alone(program, &failure.test, times, environment)?;
                }
            }
            let kind = if passes { &mut self.shaken } else { &mut self.lasting };
            kind.push(failure);
        }
        Ok(())
    }

    /// Notes tests that could not be run at all.
    pub(super) fn note(&mut self, problem: String) {
        self.silent.push(problem);
    }

    pub(super) fn append(&mut self, mut more: Self) {
        self.lasting.append(&mut more.lasting);
        self.shaken.append(&mut more.shaken);
        self.fresh.append(&mut more.fresh);
        self.silent.append(&mut more.silent);
    }

    /// Whether the run as a whole passed.
    pub(super) fn are_bearable(&self, patience: Patience) -> bool {
        let none_lasts = self.lasting.is_empty() && self.fresh.is_empty() && self.silent.is_empty();
        none_lasts && self.shaken.len() <= patience.shaken
    }
}

fn passes_alone(program: &Program, test: &str, times: usize, environment: &[(String, String)]) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let only_it = ["--exact".to_owned(), test.to_owned()];
    for time in 0..times {
        if time > 0 && begun.elapsed() > LONG_ALONE {
            break;
        }
        if !process::run(&mut program.command(environment, &only_it))?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasting: Vec<_> = self.lasting.iter().chain(&self.fresh).collect();
        if !self.shaken.is_empty() {
            writeln!(f, "\nFailed among others and passed alone; to be fixed:")?;
        }
        for failure in &self.shaken {
            write!(f, "{failure}")?;
        }
        if !lasting.is_empty() || !self.silent.is_empty() {
            writeln!(f, "\nFailed:")?;
        }
        for failure in lasting {
            write!(f, "{failure}")?;
        }
        for problem in &self.silent {
            writeln!(f, "  {problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.whose.as_deref().unwrap_or("example in the documentation");
        writeln!(f, "  {} ({whose})", self.test)?;
        for line in &self.said {
            writeln!(f, "    | {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{super::runner, *};

    fn failures(shaken: usize, lasting: usize) -> Failures {
        let failure = |test: usize| Failure {
            program: Some("target/cli-1".into()),
            whose: Some("posthaste-cli: cli".into()),
            test: format!("run::t{test}"),
            said: vec!["left: 1".into()],
        };
        Failures {
            shaken: (0..shaken).map(failure).collect(),
            lasting: (0..lasting).map(failure).collect(),
            ..Failures::default()
        }
    }

    #[test]
    fn a_few_that_pass_alone_are_named_and_bearable() {
        let bearable = |shaken, lasting| failures(shaken, lasting).are_bearable(Patience::QUIET);
        assert!(bearable(0, 0));
        assert_eq!(failures(0, 0).to_string(), "");
        assert!(bearable(Patience::QUIET.shaken, 0));
        assert!(!bearable(Patience::QUIET.shaken + 1, 0));
        assert!(!bearable(0, 1));
        let said = failures(1, 1).to_string();
        assert_eq!(
            said.matches("  run::t0 (posthaste-cli: cli)\n    | left: 1\n").count(),
            2,
            "{said}"
        );
    }

    #[test]
    fn a_program_that_ends_badly_without_a_word_is_a_failure() -> anyhow::Result<()> {
        let mut failures = Failures::default();
        let mut tests = Command::new("sh");
        tests.args(["-c", "exit 3"]);
        failures.take(runner::show(tests)?, &[], None, &mut Times::default());
        assert!(!failures.are_bearable(Patience::QUIET), "{failures}");
        Ok(())
    }

    #[test]
    fn what_failed_is_run_alone_and_sorted() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        // Fails among others; alone, one test passes and the other does not.
        let script = dir.path().join("shop-1");
        let text = "#!/bin/sh
            case \"$*\" in
                '--exact shaky') echo >> \"$0.runs\"; exit 0;;
                '--exact broken') exit 1;;
            esac
            printf 'running 2 tests\\n\\nfailures:\\n    shaky\\n    broken\\n\\ntest result: FAILED. 0 passed\\n'
            exit 101";
        std::fs::write(&script, text)?;
        process::demand(Command::new("chmod").arg("+x").arg(&script))?;
        let message = format!(
            r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{}/Cargo.toml","target":{{"name":"shop"}},"profile":{{"test":true}},"executable":"{}"}}"#,
            dir.path().display(),
            script.display(),
        );
        let programs = super::super::programs::read(&message);

        let mut failures = Failures::default();
        let mut times = Times::default();
        failures.take(
            runner::show(programs[0].command(&[], &[]))?,
            &programs,
            None,
            &mut times,
        );
        assert!(!failures.are_bearable(Patience::QUIET), "nothing was run alone yet");
        failures.run_alone(&programs, &[], Patience::QUIET)?;

        let names = |of: &[Failure]| of.iter().map(|failure| failure.test.clone()).collect::<Vec<_>>();
        assert_eq!(names(&failures.shaken), ["shaky"]);
        assert_eq!(names(&failures.lasting), ["broken"]);
        assert_eq!(runs(&dir)?, TIMES_ALONE);

        // When too many failed, once is enough to tell the kinds apart.
        let failed = (0..MANY).map(|_| failures.shaken[0].clone());
        let mut many = Failures {
            fresh: failed.collect(),
            ..Failures::default()
        };
        many.run_alone(&programs, &[], Patience::QUIET)?;
        assert_eq!(many.shaken.len(), MANY);
        assert_eq!(runs(&dir)?, TIMES_ALONE + MANY);
        Ok(())
    }

    /// How often the shaky one ran.
    fn runs(dir: &tempfile::TempDir) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(dir.path().join("shop-1.runs"))?.lines().count())
    }
}
