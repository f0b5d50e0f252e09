//! `cargo xtask test`

use std::{
    env,
    process::{Command, ExitCode},
};

use crate::{
    openssl, process, python,
    server::{Kind, Server},
    services,
    suites::{self, Suites},
    workspace,
};

/// Run every test, against private servers that this command starts and stops
///
/// What is missing on the machine is installed: PostgreSQL, MariaDB, Redis, Java, Maven and the headers of OpenSSL with
/// apt-get, Apache Kafka with Maven into target/xtask/kafka, psycopg and `PyMySQL` with pip into target/xtask/python.
/// Suites that cannot be run are left out and named at the end; with CI=true in the environment that is a failure.
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
    let servers: Vec<Server> = Kind::ALL
        .into_iter()
        .filter_map(|kind| suites.provide(kind.title(), kind.name(), || kind.start("test")))
        .collect();
    let python = suites.provide("Python writes to the outbox", "python", || {
        let drivers: Vec<_> = servers.iter().filter_map(|server| driver(server.kind())).collect();
        anyhow::ensure!(!drivers.is_empty(), "needs PostgreSQL or MariaDB");
        python::provide(&drivers)
    });

    let mut cargo_test = cargo_test(&arguments.cargo_test);
    cargo_test.env(suites::WITHOUT, suites.missing());
    cargo_test.envs(servers.iter().flat_map(Server::environment));
    if let Some(path) = &python {
        cargo_test.env("POSTHASTE_TEST_PYTHONPATH", path);
    }
    let tests = process::run(&mut cargo_test)?;

    if arguments.keep {
        println!("\nThese servers stay until `cargo xtask services down`:");
        for server in servers {
            println!("  {}  {}", server.kind(), server.address());
            services::leave(server)?;
        }
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

/// With what Python connects to it, if it is a database.
fn driver(kind: Kind) -> Option<python::Driver> {
    match kind {
        Kind::Postgres => Some(python::PSYCOPG),
        Kind::MariaDb => Some(python::PYMYSQL),
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
