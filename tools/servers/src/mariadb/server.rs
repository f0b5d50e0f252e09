use std::{
    fs,
    io::{self, Read},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Uid};

use super::{MariaDbBinaries, MariaDbOptions, options, programs::Programs};
use crate::{
    Error, Result, StopMode,
    account::Account,
    guard::Guard,
    home::Home,
    port,
    process::{Process, wait_until},
};

const PORT_TRIES: usize = 5;
const START_TIMEOUT: Duration = Duration::from_mins(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// `sun_path` holds 107 bytes.
const MAX_SOCKET_DIR_BYTES: usize = 107 - "/socket".len();

/// A MariaDB server of our own. Dropping it stops it and removes its data.
///
/// `root` needs no password, from this machine.
pub type MariaDbServer = Server<MariaDbBinaries>;

/// A server of the family of MySQL, started with its programs.
#[derive(Debug)]
pub struct Server<P: Programs> {
    binaries: P,
    process: Process,
    port: u16,
    guard: Option<Guard>,
    home: Home,
}

impl<P: Programs> Server<P> {
    /// Starts a new server with its data in a fresh directory below `parent`.
    pub fn start(parent: &Path) -> Result<Self> {
        Self::start_with(parent, &MariaDbOptions::default())
    }

    /// The same, with options.
    pub fn start_with(parent: &Path, options: &MariaDbOptions) -> Result<Self> {
        let binaries = P::find()?;
        let home = Home::create(parent, P::PREFIX, &Account::Ourselves, MAX_SOCKET_DIR_BYTES)?;
        let guard = Some(set_guard(&home)?);
        let mut server = Self {
            binaries,
            process: process(&home),
            port: 0,
            guard,
            home,
        };
        server.initialise(options)?;
        for _ in 0..PORT_TRIES {
            server.port = port::find_free()?;
            match server.start_again() {
                Err(Error::PortTaken(_)) => {}
                Err(error) => return Err(error),
                Ok(()) => return server.with_port_noted(),
            }
        }
        Err(Error::NoFreePort)
    }

    fn with_port_noted(self) -> Result<Self> {
        port::note(self.home.path(), self.port)?;
        Ok(self)
    }

    fn initialise(&self, options: &MariaDbOptions) -> Result<()> {
        let file = self.configuration();
        let (section, needed) = self.binaries.configuration();
        fs::write(&file, options.configuration(self.home.path(), section, &needed))
            .map_err(Error::io(format!("write {}", file.display())))?;
        let temporary = options::temporary(self.home.path());
        fs::create_dir_all(&temporary).map_err(Error::io(format!("create {}", temporary.display())))?;
        let steps = self.binaries.install(self.home.path())?;
        let mut install = self.command(steps.program);
        install.args(steps.arguments);
        let failed = |output| Error::Failed {
            command: format!("{} (in {})", steps.program, self.home.path().display()),
            output,
        };
        let done = install.output().map_err(|error| failed(error.to_string()))?;
        if done.status.success() {
            return Ok(());
        }
        Err(failed(
            String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        ))
    }

    /// Lets the server run on without an owner. [`Server::attach`] finds it again by the path given back.
    pub fn detach(mut self) -> PathBuf {
        self.guard = None;
        let home = self.home.path().to_owned();
        std::mem::forget(self);
        home
    }

    /// Becomes the owner of a server that was left with [`Server::detach`], whether it still runs or not.
    pub fn attach(home: &Path) -> Result<Self> {
        let port = port::noted(home)?;
        let home = Home::take_over(home.to_owned());
        Ok(Self {
            binaries: P::find()?,
            process: process(&home),
            port,
            guard: None,
            home,
        })
    }

    /// The address to connect to, as `root` and to the database `mysql`.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/mysql", self.port)
    }

    /// The port on 127.0.0.1. It stays the same when the server is started again.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The programs the server was started with, the client among them where it is installed.
    pub fn binaries(&self) -> &P {
        &self.binaries
    }

    /// Stops the server and waits until it is gone. Its data stays. Does nothing if it is not running.
    pub fn stop(&self, mode: StopMode) -> Result<()> {
        let signal = match mode {
            StopMode::Fast => Signal::SIGTERM,
            StopMode::Immediate => Signal::SIGKILL,
        };
        self.process.end(signal, START_TIMEOUT)
    }

    /// Starts the stopped server on the same port and waits until it takes connections.
    pub fn start_again(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let _ = fs::remove_file(self.process.log());
        let mut command = self.command(P::DAEMON);
        command.arg(format!("--port={}", self.port));
        self.process.start(&mut command)?;
        let up = || greets(self.port).unwrap_or(false) && self.is_running();
        if wait_until(START_TIMEOUT, up, || !self.is_running()) {
            return Ok(());
        }
        let log = fs::read(self.process.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        if ["Address already in use", "Do you already have another mysqld"]
            .iter()
            .any(|said| log.contains(said))
        {
            return Err(Error::PortTaken(self.port));
        }
        Err(self.process.failed(P::DAEMON))
    }

    /// Whether the server's process is alive.
    pub fn is_running(&self) -> bool {
        self.process.is_alive()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.binaries.command(program);
        // Before all other options, or else it is not understood.
        command.arg(format!("--defaults-file={}", self.configuration().display()));
        if Uid::effective().is_root() {
            // It runs as root only when told to.
            command.arg("--user=root");
        }
        // Messages are compared, so they must not be translated.
        command.env("LC_ALL", "C");
        command
    }

    fn configuration(&self) -> PathBuf {
        self.home.path().join("my.cnf")
    }
}

impl<P: Programs> Drop for Server<P> {
    fn drop(&mut self) {
        // There is nobody left to tell, and the data goes next, without which the server cannot live on.
        let _ = self.stop(StopMode::Immediate);
    }
}

/// The server makes its data directory its working directory, by which a process is known again.
fn process(home: &Home) -> Process {
    Process::of(home.path().join("data"))
}

/// Whether a server greets whoever connects, as it does once it takes connections.
fn greets(port: u16) -> io::Result<bool> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut server = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    server.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let mut greeting = [0; 5];
    server.read_exact(&mut greeting)?;
    // The length of the packet, its number, and the version of the protocol.
    Ok(greeting[4] == 10)
}

/// Does what dropping does, for the case that nothing is dropped.
fn set_guard(home: &Home) -> Result<Guard> {
    let clean_up = r#"kill -9 $(cat "$1/data/pid"); rm -rf "$1""#;
    Guard::set(&Account::Ourselves, clean_up, [home.path()])
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::test_setup;

    #[test]
    fn the_server_goes_with_the_process_that_owned_it() {
        if test_setup::left_out("mariadb") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let mut server = MariaDbServer::start(parent.path()).unwrap();
        let guard = server.guard.take().expect("a new server has a guard");

        guard.pretend_that_we_died();

        assert!(wait_until(START_TIMEOUT, || !server.is_running(), || false));
        assert!(!server.home.path().exists());
    }

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        if test_setup::left_out("mariadb") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let mut server = MariaDbServer::start(parent.path()).unwrap();
        server.stop(StopMode::Fast).unwrap();
        let free = server.port;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        server.port = listener.local_addr().unwrap().port();
        assert!(matches!(server.start_again(), Err(Error::PortTaken(taken)) if taken == server.port));

        server.port = free;
        fs::write(server.configuration(), "[mariadbd]\nnonsense = 1\n").unwrap();
        let error = server.start_again().unwrap_err();
        assert!(error.to_string().contains("unknown variable"), "{error}");
    }
}
