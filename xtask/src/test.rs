//! `cargo xtask test`

mod failures;
mod listener;
mod needs;
mod plan;
mod programs;
mod second_runs;
mod suites;
mod times;

use std::{
    env,
    num::NonZero,
    process::{Command, ExitCode},
    thread,
};

use clap::builder::PossibleValuesParser;

use self::{failures::Failures, needs::Needs, plan::Plan, second_runs::SecondRun, times::Times};
use crate::{
    openssl, pgbouncer, process, prometheus, python,
    server::{Kind, Server},
    services, workspace,
};

const TESTS_PER_CORE: usize = 3;

/// Run every test, against private servers that this command starts and stops
///
/// What is missing on the machine is installed: PostgreSQL, `PgBouncer`, MariaDB, Redis, Prometheus, Java, Maven and the headers of
/// OpenSSL with apt-get, Apache Kafka with Maven into target/xtask/kafka, psycopg and `PyMySQL` with pip into target/xtask/python, and
/// MySQL with debootstrap into ~/.cache/posthaste. Suites that cannot be run are left out and named at the end; with CI=true
/// in the environment that is a failure, unless it is one of the servers for a second run.
///
/// The tests of the MySQL store run twice: on MariaDB with all others, and on MySQL afterwards; those of the PostgreSQL
/// store on Debian's version and then on 18, with pip into target/xtask/postgres-18.
///
/// What failed is named at the end, with what it said, after it was run again alone. Up to three tests that fail among others
/// and pass five times alone do not fail the run. Then come the suites with their times, and the slowest tests.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run these suites only, on the servers that they need
    #[arg(long, value_name = "SUITE", value_delimiter = ',', value_parser = PossibleValuesParser::new(plan::names()))]
    only: Vec<String>,

    /// Name the suites, with what is in them, and run nothing
    #[arg(long)]
    list: bool,

    /// Leave the servers running afterwards; `cargo xtask services down` stops them
    #[arg(long)]
    keep: bool,

    /// Arguments for `cargo test`, for instance `-- -p posthaste-core`
    #[arg(last = true)]
    cargo_test: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.list {
        print!("{}", plan::list());
        return Ok(ExitCode::SUCCESS);
    }
    openssl::provide();
    let plan = Plan::of(&arguments.only, &arguments.cargo_test);
    let mut needs = Needs::default();
    let servers: Vec<Server> = plan
        .servers()
        .filter_map(|kind| needs.provide(kind.title(), kind.name(), || kind.start("test")))
        .collect();
    let environment = environment_of_all(&plan, &servers, &mut needs);

    let mut times = Times::default();
    let mut failures = Failures::default();
    if plan.has_first_run() {
        let words = plan.arguments();
        // Apart from the run, so that cargo shows its progress.
        let built = process::run(cargo_test(&before_harness(&words)).arg("--no-run"))?;
        if !built.success() {
            return Ok(ExitCode::FAILURE);
        }
        failures.append(run_first(&environment, &words, &mut times)?);
    }
    for second in &plan.second_runs {
        let words = plan.arguments_again(second);
        failures.append(run_again(second, &mut needs, &environment, &words, &mut times));
    }

    if arguments.keep {
        println!("\nThese servers stay until `cargo xtask services down`:");
        for server in servers {
            println!("  {}  {}", server.kind(), server.address());
            services::leave(server)?;
        }
    }
    println!("\nWhat the tests need\n{needs}\n{times}");
    println!("{failures}");
    if !needs.is_complete() && in_ci() {
        println!("CI=true, and there nothing may be missing: failed.");
        return Ok(ExitCode::FAILURE);
    }
    Ok(if failures.are_bearable() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Where the tests find the servers, and what else they need.
fn environment_of_all(plan: &Plan, servers: &[Server], needs: &mut Needs) -> Vec<(String, String)> {
    let mut environment: Vec<_> = servers.iter().flat_map(environment).collect();
    if plan.needs_pgbouncer() {
        needs.provide("PgBouncer in transaction mode", "pgbouncer", pgbouncer::provide);
    }
    if plan.needs_prometheus() {
        needs.provide("Prometheus, for the alerts", "prometheus", prometheus::provide);
    }
    if plan.needs_python() {
        let path = needs.provide("Python writes to the outbox", "python", || {
            let again = plan.second_runs.iter().map(|second| second.kind);
            let kinds = servers.iter().map(Server::kind).chain(again);
            let drivers: Vec<_> = kinds.filter_map(driver).collect();
            anyhow::ensure!(!drivers.is_empty(), "needs PostgreSQL or MariaDB");
            python::provide(&drivers)
        });
        environment.extend(path.map(|path| ("POSTHASTE_TEST_PYTHONPATH".into(), path.display().to_string())));
    }
    environment.push((needs::WITHOUT.into(), needs.missing()));
    environment.extend(test_threads());
    environment
}

fn run_first(environment: &[(String, String)], arguments: &[String], times: &mut Times) -> anyhow::Result<Failures> {
    let programs = programs::of(cargo_test(&before_harness(arguments)))?;
    let mut failures = Failures::default();
    let mut tests = cargo_test(arguments);
    tests.envs(environment.iter().map(|(name, value)| (name, value)));
    failures.listen(tests, &programs, None, times)?;
    failures.run_alone(&programs, environment)?;
    Ok(failures)
}

/// Runs some tests once more, on a server that lives as long as they do. Nothing fails if they were left out because there
/// is no such server.
fn run_again(
    second: &SecondRun,
    needs: &mut Needs,
    first: &[(String, String)],
    arguments: &[String],
    times: &mut Times,
) -> Failures {
    let start = || second.kind.start("test");
    let server = if second.optional {
        needs.provide_if_possible(second.title, second.name(), start)
    } else {
        needs.provide(second.title, second.name(), start)
    };
    let Some(server) = server else {
        return Failures::default();
    };
    let mut environment_of_both = first.to_vec();
    // Later ones replace earlier ones.
    environment_of_both.extend(environment(&server));
    let build = cargo_test(&before_harness(arguments));
    let tests = second.run(build, &environment_of_both, &second_runs::harness(arguments), times);
    tests.unwrap_or_else(|error| {
        let mut failures = Failures::default();
        failures.note(format!("{}: {error:#}", second.title));
        failures
    })
}

/// More tests at a time than there are cores: most of them wait for a server, or for time to pass.
fn test_threads() -> Option<(String, String)> {
    let name = times::THREADS;
    if env::var_os(name).is_some() {
        return None;
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Some((name.into(), (TESTS_PER_CORE * cores).to_string()))
}

fn before_harness(arguments: &[String]) -> Vec<String> {
    arguments.iter().take_while(|word| *word != "--").cloned().collect()
}

fn environment(server: &Server) -> Vec<(String, String)> {
    let variables = server.environment().into_iter();
    variables.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// With what Python connects to it, if it is a database.
fn driver(kind: Kind) -> Option<python::Driver> {
    match kind {
        Kind::Postgres | Kind::Postgres18 => Some(python::PSYCOPG),
        Kind::MariaDb | Kind::MySql => Some(python::PYMYSQL),
        Kind::Kafka | Kind::Redis => None,
    }
}

fn cargo_test(extra: &[String]) -> Command {
    let mut command = workspace::cargo();
    command.arg("test");
    let names_packages = |argument: &String| argument.starts_with("-p") || argument.starts_with("--package");
    if !extra.iter().any(names_packages) {
        // Together with a package it would still mean all of them.
        command.arg("--workspace");
    }
    command.args(["--all-features", "--no-fail-fast"]).args(extra);
    command
}

fn in_ci() -> bool {
    env::var("CI").is_ok_and(|ci| ci == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naming_a_package_leaves_the_others_out() {
        let line = |extra: &[&str]| {
            let extra: Vec<_> = extra.iter().map(ToString::to_string).collect();
            let command = cargo_test(&extra);
            command
                .get_args()
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line(&[]), "test --workspace --all-features --no-fail-fast");
        assert_eq!(line(&["-p", "xtask"]), "test --all-features --no-fail-fast -p xtask");
    }
}
