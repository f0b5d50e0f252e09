//! Tests that run once more, on another server than the first time.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::{process, server::Kind, workspace};

/// The tests of one package once more. Only what is named differs from the first run: the server's own environment stands
/// in place of the first one's.
#[derive(Debug)]
pub(crate) struct SecondRun {
    /// What users read.
    pub(crate) title: &'static str,
    /// On which server. Its [`Server::environment`](crate::server::Server::environment) is that of the tests.
    pub(crate) kind: Kind,
    /// Whose tests.
    pub(crate) package: &'static str,
    /// Which of its test targets; all of them if empty.
    pub(crate) targets: &'static [&'static str],
    /// Which of these not.
    pub(crate) left_out: &'static [&'static str],
    /// Whether CI may do without it, because the server comes from where it may be gone tomorrow.
    pub(crate) optional: bool,
}

pub(crate) const SECOND_RUNS: [SecondRun; 2] = [
    SecondRun {
        title: "MySQL: the store's tests once more",
        kind: Kind::MySql,
        package: "posthaste-mysql",
        targets: &[],
        // Where a table has no place of its own for dedupe keys, MySQL ends some of many racing producers by a deadlock.
        left_out: &["tables"],
        optional: true,
    },
    SecondRun {
        title: "PostgreSQL 18: the store's tests once more",
        kind: Kind::Postgres18,
        package: "posthaste-postgres",
        // What does not depend on the server's version is left out: it is what takes long.
        targets: &[
            "conformance",
            "leased",
            "maps",
            "log",
            "plans",
            "statements",
            "catalogue",
        ],
        left_out: &[],
        optional: true,
    },
];

/// One line of what cargo says about a build.
#[derive(Deserialize)]
struct Built {
    reason: String,
    #[serde(default)]
    package_id: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// A program with tests, and where cargo runs it.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    executable: PathBuf,
    dir: PathBuf,
}

impl SecondRun {
    /// Whether the arguments for `cargo test` leave it in.
    pub(crate) fn is_wanted(&self, arguments: &[String]) -> bool {
        let named = packages(arguments);
        named.is_empty() || named.contains(self.package)
    }

    /// Runs the programs that the first run built, so that nothing is built again with other features. `build` is its
    /// command; `harness` are the arguments of the tests themselves. Says whether all passed.
    pub(crate) fn run(
        &self,
        mut build: Command,
        environment: &[(String, String)],
        harness: &[String],
    ) -> anyhow::Result<bool> {
        build
            .args(["--no-run", "--message-format=json"])
            .stderr(Stdio::inherit());
        let told = build.output().context("cannot run cargo")?;
        ensure!(told.status.success(), "the tests could not be built");
        let programs = self.programs(&String::from_utf8_lossy(&told.stdout));
        ensure!(!programs.is_empty(), "{} has no such tests", self.package);
        let mut all_passed = true;
        for Program { executable, dir } in programs {
            let mut test = Command::new(executable);
            test.current_dir(&dir).env("CARGO_MANIFEST_DIR", &dir).args(harness);
            test.env("CARGO", workspace::cargo().get_program());
            test.envs(environment.iter().map(|(name, value)| (name, value)));
            all_passed &= process::run(&mut test)?.success();
        }
        Ok(all_passed)
    }

    fn programs(&self, messages: &str) -> Vec<Program> {
        let built = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Built>(line).ok());
        let ours = built.filter(|built| {
            let target = built.target.as_ref().map_or("", |target| &target.name);
            built.reason == "compiler-artifact"
                && is_package(&built.package_id, self.package)
                && (self.targets.is_empty() || self.targets.contains(&target))
                && !self.left_out.contains(&target)
        });
        ours.filter_map(|built| {
            Some(Program {
                executable: built.executable?,
                dir: built.manifest_path.parent().map(Path::to_owned)?,
            })
        })
        .collect()
    }
}

/// Cargo's ids end with `/name#version`, or with `#name@version` where the directory has another name.
fn is_package(id: &str, name: &str) -> bool {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((package, _)) => package == name,
        None => path.rsplit('/').next() == Some(name),
    }
}

/// The packages that arguments for `cargo test` name.
fn packages(arguments: &[String]) -> BTreeSet<&str> {
    let mut named = BTreeSet::new();
    let mut words = arguments.iter().map(String::as_str).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "-p" || word == "--package" {
            named.extend(words.next());
        } else if let Some(name) = word.strip_prefix("--package=").or_else(|| word.strip_prefix("-p")) {
            named.insert(name);
        }
    }
    named
}

/// What the arguments for `cargo test` say to the tests themselves: a filter, and what stands after `--`.
pub(crate) fn harness(arguments: &[String]) -> Vec<String> {
    let after = arguments.iter().skip_while(|word| *word != "--").skip(1);
    after.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn it_runs_unless_other_packages_are_named() {
        let [mysql, _] = &SECOND_RUNS;
        assert!(mysql.is_wanted(&words("")));
        assert!(mysql.is_wanted(&words("-p posthaste-mysql -- -p xtask")));
        assert!(mysql.is_wanted(&words("-p xtask --package=posthaste-mysql")));
        assert!(!mysql.is_wanted(&words("-pxtask")));
        assert_eq!(harness(&words("-p x -- --nocapture name")), ["--nocapture", "name"]);
    }

    #[test]
    fn its_programs_are_those_that_cargo_built() {
        let run = SecondRun {
            title: "",
            kind: Kind::MySql,
            package: "posthaste-mysql",
            targets: &["conformance", "odd"],
            left_out: &["odd"],
            optional: true,
        };
        let line = |id: &str, target: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/m/Cargo.toml",
                "target":{{"name":"{target}"}},"executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            line(
                "path+file:///w/crates/posthaste-mysql#0.1.0",
                "conformance",
                r#""/t/a""#,
            ),
            line("path+file:///w/crates/posthaste-mysql#0.1.0", "plans", r#""/t/b""#),
            line("path+file:///w/crates/posthaste-mysql#0.1.0", "odd", r#""/t/e""#),
            line("path+file:///w/crates/posthaste-mysql#0.1.0", "posthaste_mysql", "null"),
            line(
                "path+file:///w/crates/posthaste-sqlite#0.1.0",
                "conformance",
                r#""/t/c""#,
            ),
            line("path+file:///w/m#posthaste-mysql@0.1.0", "conformance", r#""/t/d""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = run.programs(&messages.join("\n"));
        let executables: Vec<_> = found.iter().map(|program| program.executable.as_path()).collect();
        assert_eq!(executables, [Path::new("/t/a"), Path::new("/t/d")]);
        assert_eq!(found[0].dir, Path::new("/w/m"));
    }
}
