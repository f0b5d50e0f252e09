//! The project's own commands. `cargo xtask` lists them.

mod apt;
mod bench;
mod check;
mod conformance;
mod cycles;
mod debezium;
mod kafka;
mod layers;
mod mysql;
mod openssl;
mod package;
mod pgbouncer;
mod postgres18;
mod process;
mod prometheus;
mod python;
mod server;
mod services;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
/// Everything a developer or a CI machine does with this repository
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Test(test::Arguments),
    /// Check formatting, lints, documentation, the conformance page, the layers and import circles; needs no server
    Check,
    Conformance(conformance::Arguments),
    Bench(bench::Arguments),
    Package(package::Arguments),
    #[command(subcommand)]
    Services(services::Action),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Test(arguments) => test::run(&arguments),
        Task::Check => Ok(check::run()),
        Task::Conformance(arguments) => conformance::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Package(arguments) => package::run(&arguments),
        Task::Services(action) => services::run(&action),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
