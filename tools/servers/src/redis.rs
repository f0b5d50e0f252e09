use std::{
    env, fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{
    Error, Result,
    account::Account,
    guard::Guard,
    home::Home,
    port,
    process::{Process, wait_until},
};

const PORT_TRIES: usize = 5;
const START_TIMEOUT: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A Redis server of our own, which keeps everything in memory. Dropping it ends it.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: u16,
    guard: Option<Guard>,
    home: Home,
}

impl RedisServer {
    /// The environment variable that names the program. Without it, `redis-server` is looked for by `PATH`.
    pub const VARIABLE: &str = "POSTHASTE_REDIS_SERVER";

    /// Whether the program that [`RedisServer::start`] needs is on this machine.
    pub fn is_installed() -> bool {
        program().is_ok()
    }

    /// Starts a new, empty server with its files in a fresh directory below `parent`.
    pub fn start(parent: &Path) -> Result<Self> {
        program()?;
        let home = Home::create(parent, "redis-", &Account::Ourselves, usize::MAX)?;
        let guard = Some(set_guard(&home)?);
        let mut server = Self {
            process: Process::of(home.path().to_owned()),
            port: 0,
            guard,
            home,
        };
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

    /// Lets the server run on without an owner. [`RedisServer::attach`] finds it again by the path given back.
    pub fn detach(mut self) -> PathBuf {
        self.guard = None;
        let home = self.home.path().to_owned();
        std::mem::forget(self);
        home
    }

    /// Becomes the owner of a server that was left with [`RedisServer::detach`], whether it still runs or not.
    pub fn attach(home: &Path) -> Result<Self> {
        Ok(Self {
            process: Process::of(home.to_owned()),
            port: port::noted(home)?,
            guard: None,
            home: Home::take_over(home.to_owned()),
        })
    }

    /// The address to connect to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends the server as a crash would and waits until it is gone, with all that it held. Does nothing if it is not
    /// running.
    pub fn kill(&self) -> Result<()> {
        self.process.end(Signal::SIGKILL, START_TIMEOUT)
    }

    /// Starts the ended server, empty, on the same port, and waits until it answers.
    pub fn start_again(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let _ = fs::remove_file(self.process.log());
        let mut command = Command::new(program()?);
        command
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.home.path());
        self.process.start(&mut command)?;
        if wait_until(
            START_TIMEOUT,
            || answers(self.port).unwrap_or(false) && self.is_running(),
            || !self.is_running(),
        ) {
            return Ok(());
        }
        let log = fs::read_to_string(self.process.log()).unwrap_or_default();
        if log.contains("Address already in use") {
            return Err(Error::PortTaken(self.port));
        }
        Err(self.process.failed("redis-server"))
    }

    /// Whether the server's process is alive.
    pub fn is_running(&self) -> bool {
        self.process.is_alive()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.kill();
    }
}

fn program() -> Result<PathBuf> {
    let (places, looked_in) = if let Some(file) = env::var_os(RedisServer::VARIABLE) {
        // What was asked for is used or refused, never replaced by something else.
        (vec![PathBuf::from(&file)], file.display().to_string())
    } else {
        let on_path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&on_path).map(|dir| dir.join("redis-server"));
        (places.collect(), "PATH".to_owned())
    };
    places
        .into_iter()
        .find(|file| file.is_file())
        .ok_or(Error::NotInstalled {
            server: "Redis",
            looked_in,
            variable: RedisServer::VARIABLE,
        })
}

fn answers(port: u16) -> io::Result<bool> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut server = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    server.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    server.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    server.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG\r\n")
}

/// Does what dropping does, for the case that nothing is dropped.
fn set_guard(home: &Home) -> Result<Guard> {
    let clean_up = r#"kill -9 $(cat "$1/pid"); rm -rf "$1""#;
    Guard::set(&Account::Ourselves, clean_up, [home.path()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_setup;

    #[test]
    fn the_server_goes_with_the_process_that_owned_it() {
        if test_setup::left_out("redis") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let mut server = RedisServer::start(parent.path()).unwrap();
        let guard = server.guard.take().expect("a new server has a guard");

        guard.pretend_that_we_died();

        assert!(wait_until(START_TIMEOUT, || !server.is_running(), || false));
        assert!(!server.home.path().exists());
    }
}
