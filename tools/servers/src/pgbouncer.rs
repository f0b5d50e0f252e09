use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
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

/// When a client gives its server session back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// When it disconnects.
    Session,
    /// At the end of each transaction.
    Transaction,
}

/// A `PgBouncer` of our own in front of a PostgreSQL server on this machine. Dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    account: Account,
    port: u16,
    _guard: Guard,
    home: Home,
}

impl PgBouncer {
    /// The environment variable that names the program. Without it, `pgbouncer` is looked for by `PATH` and in
    /// `/usr/sbin`.
    pub const VARIABLE: &str = "POSTHASTE_PGBOUNCER";

    /// Whether the program that [`PgBouncer::start`] needs is on this machine.
    pub fn is_installed() -> bool {
        program().is_ok()
    }

    /// Starts one in front of the server on `server_port`, with at most `pool_size` sessions for each user and database.
    /// Its files are in a fresh directory below `parent`.
    pub fn start(parent: &Path, server_port: u16, mode: PoolMode, pool_size: u32) -> Result<Self> {
        program()?;
        // It refuses to be root.
        let account = Account::instead_of_root("nobody")?;
        let home = Home::create(parent, "pgbouncer-", &account, usize::MAX)?;
        let guard = Guard::set(
            &Account::Ourselves,
            r#"kill -9 $(cat "$1/pid"); rm -rf "$1""#,
            [home.path()],
        )?;
        let mut bouncer = Self {
            process: Process::of(home.path().to_owned()),
            account,
            port: 0,
            _guard: guard,
            home,
        };
        for _ in 0..PORT_TRIES {
            bouncer.port = port::find_free()?;
            bouncer.configure(server_port, mode, pool_size)?;
            match bouncer.launch() {
                Err(Error::PortTaken(_)) => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(bouncer),
            }
        }
        Err(Error::NoFreePort)
    }

    /// The address of a database behind it, as the superuser `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn configure(&self, server_port: u16, mode: PoolMode, pool_size: u32) -> Result<()> {
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        // `extra_float_digits` is what drivers send that PgBouncer does not know.
        let configuration = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = users.txt\npool_mode = {mode}\n\
             default_pool_size = {pool_size}\nmax_client_conn = 300\nignore_startup_parameters = extra_float_digits\n",
            self.port
        );
        for (name, text) in [
            ("pgbouncer.ini", configuration.as_str()),
            ("users.txt", "\"postgres\" \"\"\n"),
        ] {
            let file = self.home.path().join(name);
            fs::write(&file, text).map_err(Error::io(format!("write {}", file.display())))?;
            self.account.give(&file)?;
        }
        Ok(())
    }

    fn launch(&self) -> Result<()> {
        let _ = fs::remove_file(self.process.log());
        let mut command = self.account.command(program()?);
        self.process.start(command.arg("pgbouncer.ini"))?;
        if wait_until(
            START_TIMEOUT,
            || self.answers() && self.process.is_alive(),
            || !self.process.is_alive(),
        ) {
            return Ok(());
        }
        let log = fs::read_to_string(self.process.log()).unwrap_or_default();
        if log.contains("Address already in use") {
            return Err(Error::PortTaken(self.port));
        }
        Err(self.process.failed("pgbouncer"))
    }

    fn answers(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.process.end(Signal::SIGKILL, START_TIMEOUT);
    }
}

fn program() -> Result<PathBuf> {
    let (places, looked_in) = if let Some(file) = env::var_os(PgBouncer::VARIABLE) {
        // What was asked for is used or refused, never replaced by something else.
        (vec![PathBuf::from(&file)], file.display().to_string())
    } else {
        let on_path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&on_path).chain([PathBuf::from("/usr/sbin")]);
        (
            places.map(|dir| dir.join("pgbouncer")).collect(),
            "PATH and /usr/sbin".to_owned(),
        )
    };
    places
        .into_iter()
        .find(|file| file.is_file())
        .ok_or(Error::NotInstalled {
            server: "PgBouncer",
            looked_in,
            variable: PgBouncer::VARIABLE,
        })
}
