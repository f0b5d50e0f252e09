//! `cargo xtask test`

use std::{
    env,
    process::{Command, ExitCode},
};

use anyhow::Context;
use posthaste_servers::{PostgresBinaries, PostgresServer};

use crate::{
    apt, process, python, services,
    suites::{self, Suites},
    workspace,
};

/// Run every test, against private servers that this command starts and stops
///
/// What is missing on the machine is installed: PostgreSQL with apt-get, psycopg with pip into target/xtask/python.
/// Suites that cannot be run are left out and named at the end; with CI=true in the environment that is a failure.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave the server running afterwards; `cargo xtask services down` stops it
    #[arg(long)]
    keep: bool,

    /// Arguments for `cargo test`, for instance `-- -p posthaste-core`
    #[arg(last = true)]
    cargo_test: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut suites = Suites::default();
    suites.add("Rust: unit, documentation and in-memory tests");
    let server = suites.provide("PostgreSQL", "postgres", start_postgres);
    let python = suites.provide("Python writes to the outbox", "python", || {
        server.as_ref().context("needs PostgreSQL")?;
        python::psycopg()
    });

    let mut cargo_test = cargo_test(&arguments.cargo_test);
    cargo_test.env(suites::WITHOUT, suites.missing());
    if let Some(server) = &server {
        cargo_test.env("POSTHASTE_TEST_POSTGRES_URL", server.url());
        cargo_test.env(PostgresBinaries::VARIABLE, server.binaries().dir());
    }
    if let Some(path) = &python {
        cargo_test.env("POSTHASTE_TEST_PYTHONPATH", path);
    }
    let tests = process::run(&mut cargo_test)?;

    if let Some(server) = server.filter(|_| arguments.keep) {
        println!(
            "\nPostgreSQL stays at {}; `cargo xtask services down` stops it.",
            server.url()
        );
        services::leave(server)?;
    }
    let incomplete = !suites.missing().is_empty();
    println!("\nSuites\n{suites}");
    let code = tests.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(match code {
        0 if incomplete && in_ci() => {
            println!("CI=true, and there every suite must run: failed.");
            ExitCode::FAILURE
        }
        code => ExitCode::from(code),
    })
}

fn start_postgres() -> anyhow::Result<PostgresServer> {
    if PostgresBinaries::find().is_err() && env::var_os(PostgresBinaries::VARIABLE).is_none() {
        apt::install(&["postgresql"])?;
    }
    let psql = PostgresBinaries::find()?.program("psql");
    if !psql.is_file() && !process::succeeds(Command::new("psql").arg("--version")) {
        apt::install(&["postgresql-client"])?;
    }
    Ok(PostgresServer::start(&workspace::scratch("test"))?)
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
