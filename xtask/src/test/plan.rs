//! What one call of `cargo xtask test` runs, and what that needs.

use super::{
    second_runs::{SECOND_RUNS, SecondRun},
    suites::{self, SUITES, Suite},
};
use crate::server::Kind;

/// The suites that were asked for; all of them if none was named.
pub(super) struct Plan {
    only: Vec<String>,
    suites: Vec<&'static Suite>,
    pub(super) second_runs: Vec<&'static SecondRun>,
    /// For `cargo test`, as the user gave them.
    arguments: Vec<String>,
}

impl Plan {
    pub(super) fn of(only: &[String], arguments: &[String]) -> Self {
        let is_asked_for = |name: &str| only.is_empty() || only.iter().any(|asked| asked == name);
        Self {
            only: only.to_vec(),
            suites: SUITES.iter().filter(|suite| is_asked_for(suite.name)).collect(),
            second_runs: SECOND_RUNS
                .iter()
                .filter(|second| second.is_wanted(only, arguments))
                .collect(),
            arguments: arguments.to_vec(),
        }
    }

    /// Whether anything runs on the servers that all tests are run on.
    pub(super) fn has_first_run(&self) -> bool {
        !self.suites.is_empty()
    }

    /// Whether cargo is told what to run, so that it must be the one that runs it.
    pub(super) fn is_cargos(&self) -> bool {
        !self.arguments.is_empty()
    }

    /// The servers of the first run.
    pub(super) fn servers(&self) -> impl Iterator<Item = Kind> {
        let needed = |kind: &Kind| self.suites.iter().any(|suite| suite.servers.contains(kind));
        Kind::FIRST.into_iter().filter(needed)
    }

    pub(super) fn needs_pgbouncer(&self) -> bool {
        self.suites.iter().any(|suite| suite.pgbouncer)
    }

    pub(super) fn needs_prometheus(&self) -> bool {
        self.suites.iter().any(|suite| suite.prometheus)
    }

    pub(super) fn needs_python(&self) -> bool {
        let again = self.second_runs.iter().filter_map(|second| suites::of(second.package));
        self.suites.iter().copied().chain(again).any(|suite| suite.python)
    }

    /// The arguments of `cargo test` for the first run.
    pub(super) fn arguments(&self) -> Vec<String> {
        if self.only.is_empty() {
            return self.arguments.clone();
        }
        let packages = self.suites.iter().flat_map(|suite| suite.packages);
        self.with_packages(packages.copied())
    }

    /// The arguments of `cargo test` that build what a second run runs: where possible those of the first run, so that
    /// nothing is built again with other features.
    pub(super) fn arguments_again(&self, second: &SecondRun) -> Vec<String> {
        let is_built = self.suites.iter().any(|suite| suite.packages.contains(&second.package));
        if is_built {
            self.arguments()
        } else {
            self.with_packages(std::iter::once(second.package))
        }
    }

    fn with_packages(&self, packages: impl Iterator<Item = &'static str>) -> Vec<String> {
        let packages = packages.flat_map(|package| ["-p".to_owned(), package.to_owned()]);
        packages.chain(self.arguments.iter().cloned()).collect()
    }
}

/// What `--only` may name.
pub(super) fn names() -> Vec<&'static str> {
    let first = SUITES.iter().map(|suite| suite.name);
    first.chain(SECOND_RUNS.iter().map(SecondRun::name)).collect()
}

/// What `--list` prints.
pub(super) fn list() -> String {
    let first = SUITES.iter().map(|suite| (suite.name, suite.packages.join(", ")));
    let again = SECOND_RUNS.iter().map(|second| {
        (
            second.name(),
            format!("{} once more, on {}", second.package, second.kind),
        )
    });
    let line = |(name, what): (&str, String)| format!("{name:12} {what}\n");
    first.chain(again).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn without_a_name_everything_runs_on_all_servers() {
        let plan = Plan::of(&[], &[]);
        assert_eq!(plan.servers().collect::<Vec<_>>(), Kind::FIRST);
        assert_eq!(plan.arguments(), [""; 0]);
        assert_eq!(plan.second_runs.len(), SECOND_RUNS.len());
    }

    #[test]
    fn a_suite_brings_its_packages_and_only_the_servers_it_needs() {
        let plan = Plan::of(&words("sqlite publishers"), &words("-- name"));
        assert_eq!(plan.servers().collect::<Vec<_>>(), [Kind::Kafka]);
        let expected = "-p posthaste-sqlite -p posthaste-kafka -p posthaste-publishers -- name";
        assert_eq!(plan.arguments(), words(expected));
        assert!(plan.second_runs.is_empty() && !plan.needs_python() && !plan.needs_pgbouncer());
        assert!(!plan.needs_prometheus() && Plan::of(&words("cli"), &[]).needs_prometheus());
    }

    #[test]
    fn a_second_run_may_be_all_there_is() {
        let plan = Plan::of(&words("mysql"), &[]);
        assert!(!plan.has_first_run() && plan.needs_python());
        assert_eq!(plan.servers().count(), 0);
        let [mysql] = plan.second_runs[..] else { panic!() };
        assert_eq!(plan.arguments_again(mysql), words("-p posthaste-mysql"));
        assert!(names().contains(&mysql.name()) && list().contains("posthaste-mysql once more, on MySQL"));
    }
}
