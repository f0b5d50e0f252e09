//! The programs with tests that cargo built.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::suites;
use crate::workspace;

/// A program with tests, and where cargo runs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) executable: PathBuf,
    pub(super) target: String,
    dir: PathBuf,
    package_id: String,
}

/// One line of what cargo says about a build.
#[derive(Deserialize)]
struct Built {
    reason: String,
    #[serde(default)]
    package_id: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    #[serde(default)]
    profile: Profile,
    executable: Option<PathBuf>,
}

/// Programs that tests call are built along with them, and have none in them.
#[derive(Default, Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl Program {
    /// A command that runs its tests as cargo would.
    pub(super) fn command(&self, environment: &[(String, String)], harness: &[String]) -> Command {
        let mut test = Command::new(&self.executable);
        test.current_dir(&self.dir)
            .env("CARGO_MANIFEST_DIR", &self.dir)
            .env("CARGO", workspace::cargo().get_program())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(harness);
        test
    }

    /// Cargo's ids end with `/name#version`, or with `#name@version` where the directory has another name.
    pub(super) fn package(&self) -> &str {
        let (path, version) = self.package_id.rsplit_once('#').unwrap_or((&self.package_id, ""));
        match version.split_once('@') {
            Some((name, _)) => name,
            None => path.rsplit('/').next().unwrap_or(path),
        }
    }

    /// The name of the suite that it belongs to.
    pub(super) fn suite(&self) -> &'static str {
        suites::of(self.package()).map_or("others", |suite| suite.name)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.package(), self.target)
    }
}

/// The one at a path. Cargo says it from the workspace in one place, and from the root in the other.
pub(super) fn find<'a>(programs: &'a [Program], path: Option<&Path>) -> Option<&'a Program> {
    let name = path?.file_name()?;
    programs
        .iter()
        .find(|program| program.executable.file_name() == Some(name))
}

/// What a `cargo test` runs. Nothing is built that this command did not build before.
pub(super) fn of(mut cargo_test: Command) -> anyhow::Result<Vec<Program>> {
    cargo_test
        .args(["--no-run", "--message-format=json"])
        .stderr(Stdio::inherit());
    let told = cargo_test.output().context("cannot run cargo")?;
    ensure!(told.status.success(), "the tests could not be built");
    Ok(read(&String::from_utf8_lossy(&told.stdout)))
}

pub(super) fn read(messages: &str) -> Vec<Program> {
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Built>(line).ok());
    built
        .filter(|built| built.reason == "compiler-artifact" && built.profile.test)
        .filter_map(|built| {
            Some(Program {
                executable: built.executable?,
                target: built.target?.name,
                dir: built.manifest_path.parent().map(Path::to_owned)?,
                package_id: built.package_id,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_from_what_cargo_says() {
        let built = |id: &str, executable: &str, is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/m/Cargo.toml",
                "target":{{"name":"plans"}},"profile":{{"opt_level":"0","test":{is_test}}},"executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let line = |id: &str, executable: &str| built(id, executable, true);
        let messages = [
            line("path+file:///w/crates/posthaste-mysql#0.1.0", r#""/t/a""#),
            line("path+file:///w/crates/posthaste-mysql#0.1.0", "null"),
            built("path+file:///w/crates/posthaste-mysql#0.1.0", r#""/t/mysql""#, false),
            line("path+file:///w/m#posthaste-mysql@0.1.0", r#""/t/b""#),
            line("path+file:///w/crates/posthaste-sqlite#0.1.0", r#""/t/c""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = read(&messages.join("\n"));
        let ours = programs.iter().filter(|program| program.package() == "posthaste-mysql");
        let executables: Vec<_> = ours.map(|program| program.executable.as_path()).collect();
        assert_eq!(executables, [Path::new("/t/a"), Path::new("/t/b")]);
        assert_eq!(programs[0].dir, Path::new("/w/m"));
        assert_eq!(programs[0].to_string(), "posthaste-mysql: plans");
        assert_eq!(programs[0].suite(), "mariadb");
        assert_eq!(find(&programs, Some(Path::new("target/b"))), Some(&programs[1]));
    }
}
