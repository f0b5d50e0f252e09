//! `cargo xtask services`

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;

use crate::{
    server::{Kind, Server},
    workspace,
};

/// How the first line of a list begins.
const OWNER: &str = "of ";

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

/// Whose list it is, and then one server per line: its name and its directory.
fn list() -> PathBuf {
    workspace::scratch("services").join("running")
}

/// The directory that the servers of this checkout belong to.
fn owner() -> anyhow::Result<PathBuf> {
    let target = workspace::scratch("services");
    fs::create_dir_all(&target)?;
    target
        .canonicalize()
        .with_context(|| format!("cannot resolve {}", target.display()))
}

fn remembered() -> anyhow::Result<Vec<Left>> {
    let list = list();
    let lines = match fs::read_to_string(&list) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", list.display())),
    };
    Ok(read(&lines, &owner()?).unwrap_or_else(|| {
        eprintln!(
            "warning: {} came from another checkout, whose servers are left alone",
            list.display()
        );
        Vec::new()
    }))
}

fn remember(all: &[Left]) -> anyhow::Result<()> {
    let owner = owner()?;
    fs::write(list(), write(all, &owner)).with_context(|| format!("cannot write {}", list().display()))
}

fn write(all: &[Left], owner: &Path) -> String {
    let servers = all
        .iter()
        .map(|Left { kind, home }| format!("{} {}\n", kind.name(), home.display()));
    format!("{OWNER}{}\n{}", owner.display(), servers.collect::<String>())
}

/// `None` if the list is not the owner's: a target directory may be copied to save compiling, and the servers in the copied
/// list are those of the checkout that it was copied from.
fn read(list: &str, owner: &Path) -> Option<Vec<Left>> {
    let (first, servers) = list.split_once('\n')?;
    (Path::new(first.strip_prefix(OWNER)?) == owner).then(|| servers.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Left> {
    let (name, home) = line.split_once(' ')?;
    Some(Left {
        kind: Kind::from_name(name)?,
        home: home.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_copied_with_its_target_directory_is_left_alone() {
        let (here, copy) = (Path::new("/src/one/target"), Path::new("/src/two/target"));
        let left = Left {
            kind: Kind::Postgres,
            home: "/src/one/target/a b".into(),
        };
        let list = write(&[left], here);
        let own = read(&list, here).expect("its own list");
        assert_eq!(own.len(), 1);
        assert_eq!(
            (own[0].kind, &*own[0].home),
            (Kind::Postgres, Path::new("/src/one/target/a b"))
        );
        assert!(read(&list, copy).is_none());
        assert!(read("postgres /src/one/target/a\n", copy).is_none(), "nobody's list");
        assert!(read(&write(&[], here), here).is_some_and(|own| own.is_empty()));
    }
}
