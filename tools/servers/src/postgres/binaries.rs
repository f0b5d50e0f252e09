use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory that holds PostgreSQL's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresBinaries {
    dir: PathBuf,
}

impl PostgresBinaries {
    /// The environment variable that names the directory.
    pub const VARIABLE: &str = "POSTHASTE_PG_BIN";

    /// Finds the programs: in the directory `POSTHASTE_PG_BIN` names, else the newest of Debian's, else by `PATH`.
    pub fn find() -> Result<Self> {
        let (places, looked_in) = if let Some(dir) = env::var_os(Self::VARIABLE) {
            // What was asked for is used or refused, never replaced by something else.
            (vec![PathBuf::from(&dir)], dir.display().to_string())
        } else {
            let on_path = env::var_os("PATH").unwrap_or_default();
            let places = newest_first(Path::new(DEBIAN))
                .into_iter()
                .chain(env::split_paths(&on_path));
            (places.collect(), format!("{DEBIAN}/*/bin and PATH"))
        };
        places
            .iter()
            .find_map(|place| Self::in_directory(place))
            .ok_or(Error::NotInstalled {
                server: "PostgreSQL",
                looked_in,
                variable: Self::VARIABLE,
            })
    }

    /// The programs in that directory, if it has all that a server needs.
    pub fn in_directory(dir: &Path) -> Option<Self> {
        // `pg_ctl` on PATH may be a link; the other programs and the libraries are where it points.
        let dir = dir.join("pg_ctl").canonicalize().ok()?.parent()?.to_owned();
        ["initdb", "postgres"]
            .iter()
            .all(|program| dir.join(program).is_file())
            .then_some(Self { dir })
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of one program, `psql` for instance.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Whether a loadable module such as `pg_stat_statements` is installed.
    pub fn has_module(&self, name: &str) -> bool {
        let file = format!("{name}.so");
        ["../lib", "../lib/postgresql", "../lib64"]
            .iter()
            .any(|lib| self.dir.join(lib).join(&file).is_file())
    }
}

/// The `bin` directories of all versions installed below `root`.
fn newest_first(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else {
        return Vec::new();
    };
    let mut versions: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions
        .into_iter()
        .map(|version| root.join(version.to_string()).join("bin"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let root = tempfile::tempdir().unwrap();
        for name in ["9", "15", "18", "lost+found"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let found: Vec<_> = newest_first(root.path())
            .iter()
            .map(|bin| bin.strip_prefix(root.path()).unwrap().display().to_string())
            .collect();
        assert_eq!(found, ["18/bin", "15/bin", "9/bin"]);
    }

    #[test]
    fn a_directory_without_a_server_is_passed_over() {
        let client_only = tempfile::tempdir().unwrap();
        fs::write(client_only.path().join("pg_ctl"), "").unwrap();
        assert_eq!(PostgresBinaries::in_directory(client_only.path()), None);
    }
}
