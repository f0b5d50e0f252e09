//! `cargo xtask test`

mod failures;
mod listener;
mod programs;
mod second_runs;
mod suites;

use std::{
    env,
    num::NonZero,
    process::{Command, ExitCode},
    thread,
};

use self::{
    failures::Failures,
    second_runs::{SECOND_RUNS, SecondRun},
    suites::Suites,
};
use crate::{
    openssl, pgbouncer, process, python,
    server::{Kind, Server},
    services, workspace,
};

const TESTS_PER_CORE: usize = 3;

/// Run every test, against private servers that this command starts and stops
///
/// What is missing on the machine is installed: PostgreSQL, `PgBouncer`, MariaDB, Redis, Java, Maven and the headers of
/// OpenSSL with apt-get, Apache Kafka with Maven into target/xtask/kafka, psycopg and `PyMySQL` with pip into target/xtask/python, and
/// MySQL with debootstrap into ~/.cache/posthaste. Suites that cannot be run are left out and named at the end; with CI=true
/// in the environment that is a failure, unless it is one of the servers for a second run.
///
/// The tests of the MySQL store run twice: on MariaDB with all others, and on MySQL afterwards; those of the PostgreSQL
/// store on Debian's version and then on 18, with pip into target/xtask/postgres-18.
///
/// What failed is named at the end, with what it said, after it was run again alone. Up to three tests that fail among others
/// and pass five times alone do not fail the run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave the servers running afterwards; `cargo xtask services down` stops them
    #[arg(long)]
    keep: bool,

    /// Arguments for `cargo test`, for instance `-- -p posthaste-core`
    #[arg(last = true)]
    cargo_test: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    openssl::provide();
    let mut suites = Suites::default();
    suites.add("Rust: unit, documentation and in-memory tests");
    let servers: Vec<Server> = Kind::FIRST
        .into_iter()
        .filter_map(|kind| suites.provide(kind.title(), kind.name(), || kind.start("test")))
        .collect();
    suites.provide("PgBouncer in transaction mode", "pgbouncer", pgbouncer::provide);
    let python = suites.provide("Python writes to the outbox", "python", || {
        let drivers: Vec<_> = servers.iter().filter_map(|server| driver(server.kind())).collect();
        anyhow::ensure!(!drivers.is_empty(), "needs PostgreSQL or MariaDB");
        python::provide(&drivers)
    });

    let mut environment: Vec<_> = servers.iter().flat_map(environment).collect();
    if let Some(path) = &python {
        environment.push(("POSTHASTE_TEST_PYTHONPATH".into(), path.display().to_string()));
    }
    environment.push((suites::WITHOUT.into(), suites.missing()));
    environment.extend(test_threads());
    // Apart from the run, so that cargo shows its progress.
    let built = process::run(cargo_test(&before_harness(&arguments.cargo_test)).arg("--no-run"))?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let mut failures = run_first(&environment, &arguments.cargo_test)?;
    for second in SECOND_RUNS
        .iter()
        .filter(|second| second.is_wanted(&arguments.cargo_test))
    {
        failures.append(run_again(second, &mut suites, &environment, &arguments.cargo_test));
    }

    if arguments.keep {
        println!("\nThese servers stay until `cargo xtask services down`:");
        for server in servers {
            println!("  {}  {}", server.kind(), server.address());
            services::leave(server)?;
        }
    }
    println!("\nSuites\n{suites}");
    println!("{failures}");
    if !suites.is_complete() && in_ci() {
        println!("CI=true, and there every suite must run: failed.");
        return Ok(ExitCode::FAILURE);
    }
    Ok(if failures.are_bearable() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_first(environment: &[(String, String)], arguments: &[String]) -> anyhow::Result<Failures> {
    let mut failures = Failures::default();
    let mut tests = cargo_test(arguments);
    tests.envs(environment.iter().map(|(name, value)| (name, value)));
    failures.listen(tests)?;
    if !failures.are_bearable() {
        let programs = programs::of(cargo_test(&before_harness(arguments)))?;
        failures.run_alone(&programs, environment)?;
    }
    Ok(failures)
}

/// Runs some tests once more, on a server that lives as long as they do. Nothing fails if they were left out because there
/// is no such server.
fn run_again(second: &SecondRun, suites: &mut Suites, first: &[(String, String)], arguments: &[String]) -> Failures {
    let start = || second.kind.start("test");
    let name = second.kind.name();
    let server = if second.optional {
        suites.provide_if_possible(second.title, name, start)
    } else {
        suites.provide(second.title, name, start)
    };
    let Some(server) = server else {
        return Failures::default();
    };
    let mut environment_of_both = first.to_vec();
    // Later ones replace earlier ones.
    environment_of_both.extend(environment(&server));
    let tests = second.run(
        cargo_test(&before_harness(arguments)),
        &environment_of_both,
        &second_runs::harness(arguments),
    );
    tests.unwrap_or_else(|error| {
        let mut failures = Failures::default();
        failures.note(format!("{}: {error:#}", second.title));
        failures
    })
}

/// More tests at a time than there are cores: most of them wait for a server, or for time to pass.
fn test_threads() -> Option<(String, String)> {
    let name = "RUST_TEST_THREADS";
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
        Kind::Postgres => Some(python::PSYCOPG),
        Kind::MariaDb => Some(python::PYMYSQL),
        Kind::Kafka | Kind::Redis | Kind::MySql | Kind::Postgres18 => None,
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
