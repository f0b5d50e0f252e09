use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Error, Result,
    mariadb::{InstallCommand, Programs},
};

/// Where MySQL is unpacked: a directory with `usr/sbin/mysqld` and all that it needs, down to the C library, in the places of
/// Debian's packages. Debian's stable releases have MariaDB alone, and a program from a later release does not run with
/// an older C library; so it is started by the loader that lies beside it. That takes neither root nor `chroot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MySqlTree {
    root: PathBuf,
    loader: PathBuf,
    libraries: PathBuf,
}

/// Lets `root` in over the network of this machine, where addresses are not resolved to names.
const USERS: &str = "create user root@'127.0.0.1'; grant all on *.* to root@'127.0.0.1' with grant option;\n";

impl MySqlTree {
    /// The environment variable that names the directory.
    pub const VARIABLE: &str = "POSTHASTE_MYSQL_TREE";

    /// Finds it: what `POSTHASTE_MYSQL_TREE` names, else [`MySqlTree::default_dir`].
    pub fn find() -> Result<Self> {
        let root = env::var_os(Self::VARIABLE).map_or_else(Self::default_dir, PathBuf::from);
        Self::at(&root).ok_or_else(|| Error::NotInstalled {
            server: "MySQL",
            looked_in: root.display().to_string(),
            variable: Self::VARIABLE,
        })
    }

    /// `posthaste/mysql` in the user's directory for caches. It outlives `cargo clean`: to get it takes a while.
    pub fn default_dir() -> PathBuf {
        let named = env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty());
        let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
        named.map_or_else(home, PathBuf::from).join("posthaste/mysql")
    }

    /// The tree of that directory, if a server is there with its loader and its libraries.
    pub fn at(root: &Path) -> Option<Self> {
        let root = root.canonicalize().ok()?;
        // One directory per architecture, `x86_64-linux-gnu` for instance, has the C library and the loader.
        let (libraries, loader) = entries(&root.join("usr/lib")).into_iter().find_map(|dir| {
            let is_loader = |file: &PathBuf| {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("ld-linux") && file.is_file()
            };
            let loader = entries(&dir).into_iter().find(is_loader)?;
            dir.join("libc.so.6").is_file().then_some((dir, loader))
        })?;
        let tree = Self {
            root,
            loader,
            libraries,
        };
        tree.program("mysqld").is_file().then_some(tree)
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn usr(&self, path: &str) -> String {
        self.root.join("usr").join(path).display().to_string()
    }
}

/// What lies in a directory; nothing if there is none.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

impl Programs for MySqlTree {
    const PREFIX: &str = "mysql-";
    const DAEMON: &str = "mysqld";

    fn find() -> Result<Self> {
        Self::find()
    }

    fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr/sbin").join(name)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").arg(&self.libraries);
        command.arg(self.program(name));
        command
    }

    fn configuration(&self) -> (&'static str, Vec<(&'static str, String)>) {
        let settings = [
            ("basedir", self.root.join("usr").display().to_string()),
            ("lc-messages-dir", self.usr("share/mysql")),
            ("character-sets-dir", self.usr("share/mysql/charsets")),
            ("plugin-dir", self.usr("lib/mysql/plugin")),
            // The packages' directory for files is not there, without which the server would not start.
            ("secure-file-priv", "NULL".into()),
            ("mysqlx", "OFF".into()),
            // A small server: tests have little data, and others need the memory.
            ("performance-schema", "OFF".into()),
            ("innodb-buffer-pool-size", "67108864".into()),
            ("innodb-redo-log-capacity", "67108864".into()),
            ("disable-log-bin", "1".into()),
        ];
        ("mysqld", settings.into())
    }

    fn install(&self, home: &Path) -> Result<InstallCommand> {
        let users = home.join("users.sql");
        fs::write(&users, USERS).map_err(Error::io(format!("write {}", users.display())))?;
        Ok(InstallCommand {
            program: Self::DAEMON,
            arguments: vec![
                "--initialize-insecure".into(),
                format!("--init-file={}", users.display()),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_a_server_and_all_that_it_takes_to_start_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let place = |path: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        };
        place("usr/sbin/mysqld");
        place("usr/lib/mysql/plugin/x.so");
        place("usr/lib/x86_64-linux-gnu/libc.so.6");
        assert_eq!(MySqlTree::at(&root), None, "without a loader");

        place("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
        let tree = MySqlTree::at(&root).unwrap();
        let command = tree.command("mysqld");
        assert_eq!(
            command.get_program(),
            root.join("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
        );
        assert_eq!(command.get_args().last().unwrap(), root.join("usr/sbin/mysqld"));

        fs::remove_file(root.join("usr/sbin/mysqld")).unwrap();
        assert_eq!(MySqlTree::at(&root), None, "without a server");
    }
}
