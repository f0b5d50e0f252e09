//! `cargo xtask test`

mod failures;
mod listener;
mod needs;
mod patience;
mod plan;
mod programs;
mod runner;
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

use self::{
    failures::Failures, needs::Needs, patience::Processors, plan::Plan, programs::Program, second_runs::SecondRun,
    times::Times,
};
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
/// The tests of the MySQL store run twice: on MariaDB with all others, and most of them on MySQL afterwards; those of the
/// PostgreSQL store that depend on its version run on Debian's and then on 18, with pip into target/xtask/postgres-18.
///
/// Two programs with tests run at a time, unless there are arguments for `cargo test`, which then runs one after the other.
///
/// What failed is named at the end, with what it said, after it was run again alone. Up to three tests that fail among others
/// and pass alone, five times or for a minute, do not fail the run; 25 where others took a fifth of the machine's processors or
/// more. Then come the suites with their times, and the slowest tests.
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
    let begun = Processors::now();
    if plan.has_first_run() {
        let words = plan.arguments();
        // Apart from the run, so that cargo shows its progress.
        let built = process::run(cargo_test(&before_harness(&words)).arg("--no-run"))?;
        if !built.success() {
            return Ok(ExitCode::FAILURE);
        }
        failures.append(run_first(&environment, &words, plan.is_cargos(), &mut times)?);
    }
    failures.append(run_again(&plan, &mut needs, &environment, &mut times)?);

    if arguments.keep {
        println!("\nThese servers stay until `cargo xtask services down`:");
        for server in servers {
            println!("  {}  {}", server.kind(), server.address());
            services::leave(server)?;
        }
    }
    println!("\nWhat the tests need\n{needs}\n{times}");
    println!("{failures}");
    let now = Processors::now();
    let patience = now.patience_since(begun);
    println!(
        "Others took {:.0} % of the processors that were wanted; so up to {} tests may fail among others if they pass alone.",
        100.0 * now.stolen_since(begun),
        patience.shaken
    );
    if !needs.is_complete() && in_ci() {
        println!("CI=true, and there nothing may be missing: failed.");
        return Ok(ExitCode::FAILURE);
    }
    Ok(if failures.are_bearable(patience) {
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

/// Runs the programs side by side, and the examples in the documentation afterwards; or leaves all of it to cargo.
fn run_first(
    environment: &[(String, String)],
    arguments: &[String],
    cargos: bool,
    times: &mut Times,
) -> anyhow::Result<Failures> {
    let programs = programs::of(cargo_test(&before_harness(arguments)))?;
    let begun = Processors::now();
    let mut failures = Failures::default();
    let mut cargo = cargo_test(arguments);
    cargo.envs(environment.iter().map(|(name, value)| (name, value)));
    if !cargos {
        let commands = programs.iter().map(|program| program.command(environment, &[]));
        for ended in runner::show_side_by_side(commands.collect())? {
            failures.take(ended, &programs, None, times);
        }
        cargo.arg("--doc");
    }
    failures.take(runner::show(cargo)?, &programs, None, times);
    let patience = Processors::now().patience_since(begun);
    failures.run_alone(&programs, environment, patience)?;
    Ok(failures)
}

/// The programs of a second run, and where they find its server, which lives as long as this.
struct Again<'a> {
    second: &'a SecondRun,
    programs: Vec<Program>,
    environment: Vec<(String, String)>,
    harness: Vec<String>,
    _server: Server,
}

/// Runs some tests once more, on other servers, side by side. Nothing fails if they were left out because there is no such
/// server.
fn run_again(
    plan: &Plan,
    needs: &mut Needs,
    first: &[(String, String)],
    times: &mut Times,
) -> anyhow::Result<Failures> {
    let begun = Processors::now();
    let mut failures = Failures::default();
    let mut all = Vec::new();
    for second in &plan.second_runs {
        let start = || second.kind.start("test");
        let server = if second.optional {
            needs.provide_if_possible(second.title, second.name(), start)
        } else {
            needs.provide(second.title, second.name(), start)
        };
        let Some(server) = server else { continue };
        let arguments = plan.arguments_again(second);
        match second.programs(cargo_test(&before_harness(&arguments))) {
            Ok(programs) => all.push(Again {
                second,
                programs,
                // Later ones replace earlier ones.
                environment: first.iter().cloned().chain(environment(&server)).collect(),
                harness: second.harness(&arguments),
                _server: server,
            }),
            Err(error) => failures.note(format!("{}: {error:#}", second.title)),
        }
    }
    let programs = all.iter().flat_map(|again| {
        let commands = again.programs.iter();
        commands.map(|program| program.command(&again.environment, &again.harness))
    });
    let mut ended = runner::show_side_by_side(programs.collect())?.into_iter();
    for again in &all {
        let mut own = Failures::default();
        for ended in ended.by_ref().take(again.programs.len()) {
            own.take(ended, &again.programs, Some(again.second.name()), times);
        }
        let patience = Processors::now().patience_since(begun);
        own.run_alone(&again.programs, &again.environment, patience)?;
        failures.append(own);
    }
    Ok(failures)
}

/// More tests at a time than there are cores: most of them wait for a server, or for time to pass. Each program has its share.
fn test_threads() -> Option<(String, String)> {
    let name = times::THREADS;
    if env::var_os(name).is_some() {
        return None;
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let share = (TESTS_PER_CORE * cores).div_ceil(runner::AT_A_TIME);
    Some((name.into(), share.to_string()))
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
