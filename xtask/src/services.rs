//! `cargo xtask services`

use std::{fs, io::ErrorKind, path::PathBuf, process::ExitCode};

use anyhow::Context;
use posthaste_servers::PostgresServer;

use crate::workspace;

/// Servers for development that run on until you stop them
#[derive(clap::Subcommand)]
pub(crate) enum Action {
    /// Start a private PostgreSQL, unless there is one, and print its address
    Up,
    /// Stop what `up` (or `test --keep`) started, and remove its data
    Down,
    /// Show the address and state of each server
    Status,
}

pub(crate) fn run(action: &Action) -> anyhow::Result<ExitCode> {
    match action {
        Action::Up => up(),
        Action::Down => down(),
        Action::Status => status(),
    }
}

/// Lets a server run on, and remembers it for `down`.
pub(crate) fn leave(server: PostgresServer) -> anyhow::Result<()> {
    let mut homes = remembered()?;
    homes.push(server.detach());
    remember(&homes)
}

fn up() -> anyhow::Result<ExitCode> {
    for home in remembered()? {
        let Ok(server) = PostgresServer::attach(&home) else {
            continue;
        };
        let (running, url) = (server.is_running(), server.url());
        server.detach();
        if running {
            println!("{url}");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let server = PostgresServer::start(&workspace::scratch("services"))?;
    println!("{}", server.url());
    leave(server)?;
    Ok(ExitCode::SUCCESS)
}

fn down() -> anyhow::Result<ExitCode> {
    for home in remembered()? {
        // A home that cannot be read was removed with target/, and its server ended by itself.
        if let Ok(server) = PostgresServer::attach(&home) {
            let url = server.url();
            drop(server);
            println!("stopped {url}");
        }
    }
    remember(&[])?;
    Ok(ExitCode::SUCCESS)
}

fn status() -> anyhow::Result<ExitCode> {
    let homes = remembered()?;
    for home in &homes {
        match PostgresServer::attach(home) {
            Ok(server) => {
                let state = if server.is_running() { "running" } else { "stopped" };
                println!("{}  {state}  {}", server.url(), home.display());
                server.detach();
            }
            Err(error) => println!("{}  gone ({error})", home.display()),
        }
    }
    if homes.is_empty() {
        println!("no services; `cargo xtask services up` starts them");
    }
    Ok(ExitCode::SUCCESS)
}

/// One directory per line.
fn list() -> PathBuf {
    workspace::scratch("services").join("running")
}

fn remembered() -> anyhow::Result<Vec<PathBuf>> {
    match fs::read_to_string(list()) {
        Ok(lines) => Ok(lines.lines().map(PathBuf::from).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", list().display())),
    }
}

fn remember(homes: &[PathBuf]) -> anyhow::Result<()> {
    let lines: Vec<_> = homes.iter().map(|home| home.display().to_string()).collect();
    fs::create_dir_all(workspace::scratch("services"))?;
    fs::write(list(), lines.join("\n")).with_context(|| format!("cannot write {}", list().display()))
}
