//! The command `posthaste`: the relay as a process of its own, and the operator's tools.

mod args;
mod commands;
mod config;
mod demo;
mod failure;
mod listener;
mod logging;
mod otel;
mod pool;
mod schema;
mod shutdown;
#[cfg(target_os = "linux")]
mod systemd;
mod terminal;
mod unserved;
mod wiring;

use std::process::ExitCode;
use std::time::Duration;

use args::Cli;

#[cfg(all(target_os = "linux", feature = "jemalloc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long threads that are stuck, such as in a write to a full pipe, may delay the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    let cli = Cli::of_process();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failure::report(&error.into()),
    };
    let result = runtime.block_on(commands::run(cli));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    wiring::join_client_threads();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
