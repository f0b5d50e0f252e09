//! Tests that run once more, on another server than the first time.

use std::{collections::BTreeSet, process::Command};

use anyhow::ensure;

use super::programs::{self, Program};
use crate::server::Kind;

/// The tests of one package once more. Only what is named differs from the first run: the server's own environment stands
/// in place of the first one's.
#[derive(Debug)]
pub(super) struct SecondRun {
    /// What users read.
    pub(super) title: &'static str,
    /// On which server. Its [`Server::environment`](crate::server::Server::environment) is that of the tests.
    pub(super) kind: Kind,
    /// Whose tests.
    pub(super) package: &'static str,
    /// Which of its test targets; all of them if empty.
    pub(super) targets: &'static [&'static str],
    /// Which tests are left out, by a part of their names.
    pub(super) skips: &'static [&'static str],
    /// Whether CI may do without it, because the server comes from where it may be gone tomorrow.
    pub(super) optional: bool,
}

pub(super) const SECOND_RUNS: [SecondRun; 2] = [
    SecondRun {
        title: "MySQL: the store's tests once more",
        kind: Kind::MySql,
        package: "posthaste-mysql",
        targets: &[],
        // Tables that come from PostgreSQL: what they have is in the others too.
        skips: &["tables::usage::", "tables::logistics::", "tables::order_service::"],
        optional: true,
    },
    SecondRun {
        title: "PostgreSQL 18: the store's tests once more",
        kind: Kind::Postgres18,
        package: "posthaste-postgres",
        // What does not depend on the server's version is left out: it is what takes long.
        targets: &["versions"],
        skips: &[],
        optional: true,
    },
];

impl SecondRun {
    /// What `--only` and the report call it.
    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Whether it runs, if these suites and these arguments for `cargo test` are asked for.
    pub(super) fn is_wanted(&self, only: &[String], arguments: &[String]) -> bool {
        if !only.is_empty() {
            return only.iter().any(|name| name == self.name());
        }
        let named = packages(arguments);
        named.is_empty() || named.contains(self.package)
    }

    /// The programs of the first run that it runs, so that nothing is built again with other features. `build` is its
    /// command.
    pub(super) fn programs(&self, build: Command) -> anyhow::Result<Vec<Program>> {
        let mut programs = programs::of(build)?;
        programs.retain(|program| self.is_among(program));
        ensure!(!programs.is_empty(), "{} has no such tests", self.package);
        Ok(programs)
    }

    /// What its programs are told, if the user told the tests this.
    pub(super) fn harness(&self, arguments: &[String]) -> Vec<String> {
        let skipped = self.skips.iter().flat_map(|name| ["--skip", name]);
        let after = arguments.iter().skip_while(|word| *word != "--").skip(1);
        skipped.map(str::to_owned).chain(after.cloned()).collect()
    }

    fn is_among(&self, program: &Program) -> bool {
        let target = program.target.as_str();
        program.package() == self.package && (self.targets.is_empty() || self.targets.contains(&target))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn it_runs_unless_other_packages_or_suites_are_named() {
        let [mysql, _] = &SECOND_RUNS;
        assert!(mysql.is_wanted(&[], &words("")));
        assert!(mysql.is_wanted(&[], &words("-p posthaste-mysql -- -p xtask")));
        assert!(mysql.is_wanted(&[], &words("-p xtask --package=posthaste-mysql")));
        assert!(!mysql.is_wanted(&[], &words("-pxtask")));
        assert!(mysql.is_wanted(&words("cli mysql"), &[]));
        assert!(!mysql.is_wanted(&words("mariadb"), &[]));
        let told = mysql.harness(&words("-p x -- --nocapture name"));
        assert_eq!(told[..2], ["--skip", "tables::usage::"]);
        assert!(told.ends_with(&words("--nocapture name")));
    }

    #[test]
    fn its_programs_are_those_of_its_package_and_targets() {
        let run = SecondRun {
            title: "",
            kind: Kind::MySql,
            package: "posthaste-mysql",
            targets: &["conformance"],
            skips: &[],
            optional: true,
        };
        let line = |package: &str, target: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/{package}#0.1.0","manifest_path":"/w/Cargo.toml","target":{{"name":"{target}"}},"profile":{{"test":true}},"executable":"/t/{package}/{target}"}}"#
            )
        };
        let messages = [
            line("posthaste-mysql", "conformance"),
            line("posthaste-mysql", "plans"),
            line("posthaste-sqlite", "conformance"),
        ];
        let programs = programs::read(&messages.join("\n"));
        let among: Vec<_> = programs.iter().filter(|program| run.is_among(program)).collect();
        assert_eq!(among, [&programs[0]]);
    }
}
