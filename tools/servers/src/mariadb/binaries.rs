use std::{
    env,
    path::{Path, PathBuf},
};

use super::{InstallCommand, Programs};
use crate::{Error, Result};

/// Where Debian keeps servers, which is not on everybody's `PATH`.
const DEBIAN: &str = "/usr/sbin";

/// Where MariaDB's programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariaDbBinaries {
    dirs: Vec<PathBuf>,
}

impl MariaDbBinaries {
    /// The environment variable that names the directory, or several as in `PATH`: packages spread the programs.
    pub const VARIABLE: &str = "POSTHASTE_MARIADB_BIN";

    /// Finds the programs: in the directories `POSTHASTE_MARIADB_BIN` names, else by `PATH` and in `/usr/sbin`.
    pub fn find() -> Result<Self> {
        let (dirs, looked_in) = if let Some(dirs) = env::var_os(Self::VARIABLE) {
            // What was asked for is used or refused, never replaced by something else.
            (env::split_paths(&dirs).collect::<Vec<_>>(), dirs.display().to_string())
        } else {
            let on_path = env::var_os("PATH").unwrap_or_default();
            let dirs = env::split_paths(&on_path).chain([PathBuf::from(DEBIAN)]);
            (dirs.collect(), format!("PATH and {DEBIAN}"))
        };
        Self::in_directories(&dirs).ok_or(Error::NotInstalled {
            server: "MariaDB",
            looked_in,
            variable: Self::VARIABLE,
        })
    }

    fn in_directories(dirs: &[PathBuf]) -> Option<Self> {
        let programs = ["mariadbd", "mariadb-install-db"];
        let mut used: Vec<PathBuf> = programs
            .iter()
            .map(|program| dirs.iter().find(|dir| dir.join(program).is_file()).cloned())
            .collect::<Option<_>>()?;
        // The client may be missing; it is for tests to say so.
        used.extend(dirs.iter().find(|dir| dir.join("mariadb").is_file()).cloned());
        used.sort();
        used.dedup();
        Some(Self { dirs: used })
    }

    /// The directories, as [`MariaDbBinaries::VARIABLE`] takes them.
    pub fn variable(&self) -> String {
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        dirs.join(":")
    }

    /// The path of one program, `mariadb` for instance.
    pub fn program(&self, name: &str) -> PathBuf {
        let places = self.dirs.iter().map(|dir| dir.join(name));
        places
            .clone()
            .find(|file| file.is_file())
            .unwrap_or_else(|| Path::new(name).to_owned())
    }
}

impl Programs for MariaDbBinaries {
    const PREFIX: &str = "mariadb-";
    const DAEMON: &str = "mariadbd";

    fn find() -> Result<Self> {
        Self::find()
    }

    fn program(&self, name: &str) -> PathBuf {
        self.program(name)
    }

    fn configuration(&self) -> (&'static str, Vec<(&'static str, String)>) {
        ("mariadbd", Vec::new())
    }

    fn install(&self, _home: &Path) -> Result<InstallCommand> {
        let arguments = ["--auth-root-authentication-method=normal", "--skip-test-db"];
        Ok(InstallCommand {
            program: "mariadb-install-db",
            arguments: arguments.map(str::to_owned).to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_programs_may_be_spread_over_directories() {
        let root = tempfile::tempdir().unwrap();
        let place = |dir: &str, program: &str| {
            let dir = root.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(program), "").unwrap();
            dir
        };
        let servers = place("sbin", "mariadbd");
        let clients = place("bin", "mariadb");
        let dirs = [clients.clone(), servers.clone()];
        assert_eq!(
            MariaDbBinaries::in_directories(&dirs),
            None,
            "a server that cannot be set up"
        );

        place("bin", "mariadb-install-db");
        let found = MariaDbBinaries::in_directories(&dirs).unwrap();
        assert_eq!(found.program("mariadbd"), servers.join("mariadbd"));
        assert_eq!(found.program("mariadb"), clients.join("mariadb"));
        let named: Vec<_> = env::split_paths(&found.variable()).collect();
        assert_eq!(MariaDbBinaries::in_directories(&named), Some(found));
    }
}
