//! `cargo xtask services`

use std::{fs, io::ErrorKind, path::PathBuf, process::ExitCode};

use anyhow::Context;

use crate::{
    server::{Kind, Server},
    workspace,
};

/// Servers for development that run on until you stop them
#[derive(clap::Subcommand)]
pub(crate) enum Action {
    /// Start private servers, unless they run already, and print their addresses
    ///
    /// What is missing on the machine is installed, as by `cargo xtask test`. The last lines are the environment in
    /// which `cargo test` finds the servers.
    Up {
        /// Only these [default: all but mysql, which has the place of mariadb in the tests' environment]
        #[arg(value_enum)]
        only: Vec<Kind>,
    },
    /// Stop what `up` (or `test --keep`) started, and remove its data
    Down,
    /// Show the address and state of each server
    Status,
}

/// A server that somebody left running.
struct Left {
    kind: Kind,
    home: PathBuf,
}

pub(crate) fn run(action: &Action) -> anyhow::Result<ExitCode> {
    match action {
        Action::Up { only } if only.is_empty() => up(&Kind::FIRST),
        Action::Up { only } => up(only),
        Action::Down => down(),
        Action::Status => status(),
    }
}

/// Lets a server run on, and remembers it for `down`.
pub(crate) fn leave(server: Server) -> anyhow::Result<()> {
    let mut all = remembered()?;
    let kind = server.kind();
    all.push(Left {
        kind,
        home: server.detach(),
    });
    remember(&all)
}

fn up(kinds: &[Kind]) -> anyhow::Result<ExitCode> {
    let mut environment = Vec::new();
    let mut outcome = ExitCode::SUCCESS;
    for kind in kinds {
        let already_up = running(*kind)?;
        let is_new = already_up.is_none();
        match already_up.map_or_else(|| kind.start("services"), Ok) {
            Ok(server) => {
                println!("{kind}  {}", server.address());
                environment.extend(server.environment());
                if is_new {
                    leave(server)?;
                } else {
                    server.detach();
                }
            }
            Err(error) => {
                eprintln!("error: {kind}: {error:#}");
                outcome = ExitCode::FAILURE;
            }
        }
    }
    println!();
    for (name, value) in environment {
        println!("export {name}={value}");
    }
    Ok(outcome)
}

fn running(kind: Kind) -> anyhow::Result<Option<Server>> {
    for left in remembered()?.into_iter().filter(|left| left.kind == kind) {
        let Ok(server) = kind.attach(&left.home) else { continue };
        if server.is_running() {
            return Ok(Some(server));
        }
        server.detach();
    }
    Ok(None)
}

fn down() -> anyhow::Result<ExitCode> {
    for Left { kind, home } in remembered()? {
        // A home that cannot be read was removed with target/, and its server has nothing left to work with.
        if let Ok(server) = kind.attach(&home) {
            let address = server.address();
            drop(server);
            println!("stopped {kind}  {address}");
        }
    }
    remember(&[])?;
    Ok(ExitCode::SUCCESS)
}

fn status() -> anyhow::Result<ExitCode> {
    let all = remembered()?;
    for Left { kind, home } in &all {
        match kind.attach(home) {
            Ok(server) => {
                let state = if server.is_running() { "running" } else { "stopped" };
                println!("{kind}  {}  {state}  {}", server.address(), home.display());
                server.detach();
            }
            Err(error) => println!("{kind}  gone ({error})"),
        }
    }
    if all.is_empty() {
        println!("no services; `cargo xtask services up` starts them");
    }
    Ok(ExitCode::SUCCESS)
}

/// One server per line: its name and its directory.
fn list() -> PathBuf {
    workspace::scratch("services").join("running")
}

fn remembered() -> anyhow::Result<Vec<Left>> {
    match fs::read_to_string(list()) {
        Ok(lines) => Ok(lines.lines().filter_map(parse).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", list().display())),
    }
}

fn parse(line: &str) -> Option<Left> {
    let (name, home) = line.split_once(' ')?;
    Some(Left {
        kind: Kind::from_name(name)?,
        home: home.into(),
    })
}

fn remember(all: &[Left]) -> anyhow::Result<()> {
    let lines: Vec<_> = all
        .iter()
        .map(|Left { kind, home }| format!("{} {}", kind.name(), home.display()))
        .collect();
    fs::create_dir_all(workspace::scratch("services"))?;
    fs::write(list(), lines.join("\n")).with_context(|| format!("cannot write {}", list().display()))
}
