use std::path::{Path, PathBuf};

use super::{PostgresBinaries, PostgresOptions, cluster::Cluster};
use crate::{Error, Result, guard::Guard, port};

const PORT_TRIES: usize = 5;

/// A PostgreSQL server of our own. Dropping it stops it and removes its data.
///
/// Everybody who connects from this machine is trusted, except the role [`PostgresServer::PASSWORD_ROLE`].
#[derive(Debug)]
pub struct PostgresServer {
    cluster: Cluster,
    port: u16,
    guard: Option<Guard>,
}

/// How a running server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Disconnects every client and shuts down in order.
    Fast,
    /// Ends at once, as in a crash: the next start goes through recovery.
    Immediate,
}

impl PostgresServer {
    /// A role that must give its password over TCP. It does not exist until somebody creates it:
    /// `create role pw_user login password '…'`.
    pub const PASSWORD_ROLE: &str = "pw_user";

    /// Starts a new server with its data in a fresh directory below `parent`.
    ///
    /// As root the server runs as the user `postgres`; where that user cannot get at `parent`, the data is kept in
    /// the system's temporary directory.
    pub fn start(parent: &Path) -> Result<Self> {
        Self::start_with(parent, &PostgresOptions::default())
    }

    /// The same, with options.
    pub fn start_with(parent: &Path, options: &PostgresOptions) -> Result<Self> {
        let cluster = Cluster::create(parent, options)?;
        let guard = set_guard(&cluster)?;
        cluster.initialise(options)?;
        for _ in 0..PORT_TRIES {
            let port = port::find_free()?;
            match cluster.launch(port) {
                Ok(()) => {
                    let guard = Some(guard);
                    return Self { cluster, port, guard }.with_port_noted();
                }
                Err(Error::PortTaken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoFreePort)
    }

    fn with_port_noted(self) -> Result<Self> {
        port::note(self.cluster.home(), self.port)?;
        Ok(self)
    }

    /// Lets the server run on without an owner. [`PostgresServer::attach`] finds it again by the path given back.
    pub fn detach(mut self) -> PathBuf {
        self.guard = None;
        let home = self.cluster.home().to_owned();
        std::mem::forget(self);
        home
    }

    /// Becomes the owner of a server that was left with [`PostgresServer::detach`], whether it still runs or not.
    pub fn attach(home: &Path) -> Result<Self> {
        Ok(Self {
            cluster: Cluster::take_over(home.to_owned())?,
            port: port::noted(home)?,
            guard: None,
        })
    }

    /// The address to connect to, as the superuser `postgres` and to the database of that name.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The port on 127.0.0.1. It stays the same when the server is started again.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The programs the server was started with, `psql` among them.
    pub fn binaries(&self) -> &PostgresBinaries {
        self.cluster.binaries()
    }

    /// Stops the server and waits until it is gone. Its data stays. Does nothing if it is not running.
    pub fn stop(&self, mode: StopMode) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.cluster.halt(match mode {
            StopMode::Fast => "fast",
            StopMode::Immediate => "immediate",
        })
    }

    /// Starts the stopped server on the same port and waits until it takes connections.
    pub fn start_again(&self) -> Result<()> {
        self.cluster.launch(self.port)
    }

    /// Whether the server's main process is alive.
    pub fn is_running(&self) -> bool {
        self.cluster.is_running()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // There is nobody left to tell, and the data goes next, without which the server cannot live on.
        let _ = self.stop(StopMode::Immediate);
    }
}

/// Does what dropping does, for the case that nothing is dropped. The directory itself stays: as root we made it where
/// the server's account may not remove anything.
fn set_guard(cluster: &Cluster) -> Result<Guard> {
    let clean_up = r#""$1" stop -s -w -m immediate -D "$2/data"; rm -rf "$2"/*"#;
    let pg_ctl = cluster.binaries().program("pg_ctl");
    Guard::set(cluster.account(), clean_up, [pg_ctl.as_path(), cluster.home()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_setup;

    #[test]
    fn the_server_goes_with_the_process_that_owned_it() {
        if test_setup::left_out("postgres") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let mut server = PostgresServer::start(parent.path()).unwrap();
        let guard = server.guard.take().expect("a new server has a guard");

        guard.pretend_that_we_died();

        assert!(!server.is_running());
        assert!(!server.cluster.data().exists());
    }
}
