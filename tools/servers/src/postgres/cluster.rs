use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{PostgresBinaries, PostgresOptions, PostgresServer};
use crate::{Error, Result, account::Account, home::Home};

/// `sun_path` holds 107 bytes and the socket's name takes 14 of them, with the slash 15.
const MAX_SOCKET_DIR_BYTES: usize = 107 - "/.s.PGSQL.65535".len();

/// A database cluster on disk, and `pg_ctl` to drive it.
#[derive(Debug)]
pub(super) struct Cluster {
    binaries: PostgresBinaries,
    account: Account,
    home: Home,
}

impl Cluster {
    /// Makes an empty directory below `parent`, to be initialised.
    pub(super) fn create(parent: &Path, options: &PostgresOptions) -> Result<Self> {
        let binaries = options.binaries.clone().map_or_else(PostgresBinaries::find, Ok)?;
        let account = Account::instead_of_root("postgres")?;
        let home = Home::create(parent, "postgres-", &account, MAX_SOCKET_DIR_BYTES)?;
        Ok(Self {
            binaries,
            account,
            home,
        })
    }

    pub(super) fn initialise(&self, options: &PostgresOptions) -> Result<()> {
        let mut initdb = self.command("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]);
        run(initdb.arg("-D").arg(self.data())).map_err(|output| self.failed("initdb", output))?;

        let lines = options.configuration(self.home(), &self.binaries);
        edit(&self.data().join("postgresql.conf"), |old| format!("{old}\n{lines}"))?;
        // The first line that matches decides, so this one stands before those that trust everybody.
        let role = PostgresServer::PASSWORD_ROLE;
        edit(&self.data().join("pg_hba.conf"), |old| {
            format!("host all {role} 127.0.0.1/32 scram-sha-256\n{old}")
        })
    }

    /// Becomes the owner of a cluster that another process made.
    pub(super) fn take_over(home: PathBuf) -> Result<Self> {
        let binaries = PostgresBinaries::find()?;
        let account = Account::instead_of_root("postgres")?;
        Ok(Self {
            binaries,
            account,
            home: Home::take_over(home),
        })
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.home().join("data")
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn binaries(&self) -> &PostgresBinaries {
        &self.binaries
    }

    /// Starts the server on that port and waits until it takes connections.
    pub(super) fn launch(&self, port: u16) -> Result<()> {
        let log = self.home().join("log");
        let written_before = fs::metadata(&log).map_or(0, |log| log.len());
        let mut start = self.pg_ctl("start");
        start
            .args(["-w", "-t", "180"])
            .args(["-o", &format!("-p {port}")])
            .arg("-l")
            .arg(&log);
        run(&mut start).map_err(|output| {
            let log = fs::read(&log).unwrap_or_default();
            let from = usize::try_from(written_before).unwrap_or(0).min(log.len());
            let log = String::from_utf8_lossy(&log[from..]);
            if log.contains("Address already in use") {
                Error::PortTaken(port)
            } else {
                self.failed("pg_ctl start", format!("{output}\n{log}"))
            }
        })
    }

    pub(super) fn halt(&self, mode: &str) -> Result<()> {
        run(self.pg_ctl("stop").args(["-w", "-m", mode])).map_err(|output| self.failed("pg_ctl stop", output))
    }

    pub(super) fn is_running(&self) -> bool {
        run(&mut self.pg_ctl("status")).is_ok()
    }

    fn pg_ctl(&self, action: &str) -> Command {
        let mut command = self.command("pg_ctl");
        command.args([action, "-s", "-D"]).arg(self.data());
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(self.binaries.program(program));
        // Messages are compared, so they must not be translated.
        command.current_dir(self.home()).env("LC_ALL", "C");
        command
    }

    fn failed(&self, command: &str, output: String) -> Error {
        Error::Failed {
            command: format!("{command} -D {}", self.data().display()),
            output,
        }
    }
}

/// Runs to the end; on failure gives back what was printed.
fn run(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&[done.stdout, done.stderr].concat())
            .trim()
            .to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn edit(file: &Path, change: impl FnOnce(String) -> String) -> Result<()> {
    fs::read_to_string(file)
        .and_then(|old| fs::write(file, change(old)))
        .map_err(Error::io(format!("edit {}", file.display())))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        if crate::test_setup::left_out("postgres") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let cluster = Cluster::create(parent.path(), &PostgresOptions::default()).unwrap();
        cluster.initialise(&PostgresOptions::default()).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(matches!(cluster.launch(port), Err(Error::PortTaken(taken)) if taken == port));

        fs::write(cluster.data().join("postgresql.conf"), "nonsense = 1").unwrap();
        let error = cluster.launch(crate::port::find_free().unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("unrecognized configuration parameter"),
            "{error}"
        );
    }
}
