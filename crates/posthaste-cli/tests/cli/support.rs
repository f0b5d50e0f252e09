//! Directories and outboxes to run the command in.

use std::fs;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use uuid::Uuid;

/// Long enough for a busy machine; a test that needs it all has failed anyway.
const TIMEOUT: Duration = Duration::from_mins(3);

const COMMAND: &str = env!("CARGO_BIN_EXE_posthaste");

/// A database that was named needs a publisher that was named.
pub const TO_STDOUT: [&str; 2] = ["--set", "publisher.kind=stdout"];

/// Delivers what is due to standard output.
pub const DRAIN: [&str; 4] = ["run", "--drain", TO_STDOUT[0], TO_STDOUT[1]];

/// Runs each case on SQLite, on PostgreSQL and on MariaDB.
macro_rules! on_every_database {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $case() {
                super::$case(&crate::support::Place::with_sqlite());
            })*
        }

        mod postgres {
            $(#[test]
            fn $case() {
                if let Some(place) = crate::support::Place::with_postgres() {
                    super::$case(&place);
                }
            })*
        }

        mod mariadb {
            $(#[test]
            fn $case() {
                if let Some(place) = crate::support::Place::with_mariadb() {
                    super::$case(&place);
                }
            })*
        }
    };
}
pub(crate) use on_every_database;

/// Whether the test runner said that there is no PostgreSQL on this machine.
pub fn without_postgres() -> bool {
    std::env::var("POSTHASTE_TEST_WITHOUT").is_ok_and(|list| list.split(',').any(|server| server == "postgres"))
}

/// A working directory, and the settings with which the command is run in it.
pub struct Place {
    directory: TempDir,
    settings: Vec<(String, String)>,
}

impl Place {
    /// Nothing configured.
    pub fn empty() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            settings: Vec::new(),
        }
    }

    pub fn with_sqlite() -> Self {
        Self::empty().set("DATABASE__URL", "sqlite://outbox.db")
    }

    /// A fresh schema on the server that all tests share.
    pub fn with_postgres() -> Option<Self> {
        if without_postgres() {
            return None;
        }
        let url = std::env::var("POSTHASTE_TEST_POSTGRES_URL")
            .expect("POSTHASTE_TEST_POSTGRES_URL names no server: run these tests with `cargo xtask test`");
        let schema = format!("cli_{}", Uuid::new_v4().simple());
        Some(
            Self::empty()
                .set("DATABASE__URL", &url)
                .set("DATABASE__SCHEMA", &schema),
        )
    }

    /// A fresh database on the MariaDB server that all tests share.
    pub fn with_mariadb() -> Option<Self> {
        let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
        if without.split(',').any(|server| server == "mariadb") {
            return None;
        }
        let url = std::env::var("POSTHASTE_TEST_MYSQL_URL")
            .expect("POSTHASTE_TEST_MYSQL_URL names no server: run these tests with `cargo xtask test`");
        let name = format!("cli_{}", Uuid::new_v4().simple());
        let server = Self::empty().set("DATABASE__URL", &url);
        server.sql(&format!("create database {name} character set utf8mb4"));
        let (place, _) = url.rsplit_once('/').expect("a URL with a database");
        Some(Self::empty().set("DATABASE__URL", &format!("{place}/{name}")))
    }

    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        let name = format!("POSTHASTE_{name}");
        let found = self.settings.iter().rev().find(|(setting, _)| *setting == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Runs statements in the database, as its owner would.
    #[track_caller]
    pub fn sql(&self, sql: &str) {
        let url = self.setting("DATABASE__URL").unwrap().to_owned();
        let schema = self.setting("DATABASE__SCHEMA").map(str::to_owned);
        let sql = sql.to_owned();
        let file = self.path("outbox.db");
        let done = tokio::runtime::Runtime::new().unwrap().block_on(async move {
            use sqlx::{AssertSqlSafe, Connection, Executor};
            if url.starts_with("postgres") {
                let schema = schema.unwrap();
                let sql = format!("create schema if not exists {schema}; set search_path = {schema}; {sql}");
                let mut conn = sqlx::PgConnection::connect(&url).await?;
                conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
            } else if url.starts_with("mysql") {
                let mut conn = sqlx::MySqlConnection::connect(&url).await?;
                conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
            } else {
                let options = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(file)
                    .create_if_missing(true);
                let mut conn = sqlx::SqliteConnection::connect_with(&options).await?;
                conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
            }
        });
        done.unwrap();
    }

    /// Adds an environment variable that is no setting.
    #[cfg(feature = "failpoints")]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a setting, as an environment variable.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((format!("POSTHASTE_{name}"), value.to_owned()));
        self
    }

    pub fn migrated(self) -> Self {
        self.run(&["migrate", "up"]).success();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(COMMAND);
        command.args(args);
        self.at_home(command)
    }

    /// The command in a process that may have so many file descriptors.
    pub fn command_with_descriptors(&self, most: usize, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
        command.args(["-c", &limited, COMMAND]).args(args);
        self.at_home(command)
    }

    /// The command in a process that may write no file beyond so many bytes, and is told so instead of being ended.
    pub fn command_with_file_size(&self, most: u64, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let limited = format!("trap '' XFSZ; ulimit -f {} && exec \"$0\" \"$@\"", most / 512);
        command.args(["-c", &limited, COMMAND]).args(args);
        self.at_home(command)
    }

    fn at_home(&self, mut command: Command) -> Command {
        // The test runner's own settings are not for the command under test.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("POSTHASTE_") {
                command.env_remove(name);
            }
        }
        command
            // Tests read it as people do.
            .env("POSTHASTE_LOG__FORMAT", "text")
            .envs(self.settings.iter().cloned())
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args), "")
    }

    pub fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        Ran::of(&mut self.command(args), input)
    }

    /// Starts the command in the background, its output in `out` and its log in `log`.
    pub fn start(&self, args: &[&str]) -> Background {
        self.start_command(self.command(args))
    }

    pub fn start_command(&self, mut command: Command) -> Background {
        let [out, log] = ["out", "log"].map(|name| fs::File::create(self.path(name)).unwrap());
        Background::of(command.stdout(out).stderr(log).spawn().unwrap())
    }

    /// Enqueues a message and returns its id.
    pub fn enqueue(&self, args: &[&str]) -> String {
        let ran = self.run(&[&["enqueue"], args].concat()).success();
        ran.stdout.split(' ').next().unwrap().to_owned()
    }

    pub fn status(&self) -> serde_json::Value {
        self.run(&["status", "--json"]).success().json()
    }
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Runs a command to its end; one that does not come to it fails the test.
    #[track_caller]
    pub fn of(command: &mut Command, input: &str) -> Self {
        let [mut out, mut err] = [(), ()].map(|()| tempfile::tempfile().unwrap());
        let handles = [&out, &err].map(|file| file.try_clone().unwrap());
        let [stdout, stderr] = handles;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap();
        // A command that fails early does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let code = Background::of(child).exit_code();
        let [stdout, stderr] = [&mut out, &mut err].map(|file| {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        });
        Self { code, stdout, stderr }
    }

    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Failed with exit code 1 and one message with these parts.
    #[track_caller]
    pub fn fails_with(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        let message = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("error:"))
            .collect::<Vec<_>>();
        assert_eq!(message.len(), 1, "not one message: {self:?}");
        for part in parts {
            assert!(message[0].contains(part), "`{part}` is not in: {}", message[0]);
        }
    }

    /// The last line of standard output.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.stdout.lines().last().unwrap()).unwrap()
    }
}

/// A process that ends with the test.
pub struct Background(Child);

impl Background {
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for its end and returns the exit code.
    #[track_caller]
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut ended = None;
        eventually("the process ends", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap().code()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
