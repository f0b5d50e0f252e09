//! The shop's own processes.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use posthaste_servers::{KafkaCluster, PostgresServer, RedisServer};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

pub struct Servers {
    pub postgres: PostgresServer,
    pub kafka: KafkaCluster,
    pub redis: RedisServer,
}

/// A process that may be killed and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Api,
    Relay(usize),
    Consumer(usize),
}

const ROLES: [Role; 5] = [
    Role::Api,
    Role::Relay(0),
    Role::Relay(1),
    Role::Consumer(0),
    Role::Consumer(1),
];

pub struct Fleet {
    processes: Vec<(Role, Child)>,
    settings: Vec<String>,
    dir: PathBuf,
    port: u16,
    kills: usize,
}

impl Fleet {
    pub async fn start(servers: &Servers, dir: &Path) -> anyhow::Result<Self> {
        // Free now, and used a moment later by our own child.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = [
            ("--database-url", servers.postgres.url()),
            ("--kafka", servers.kafka.bootstrap()),
            ("--redis-url", servers.redis.url()),
        ];
        let mut fleet = Self {
            processes: Vec::new(),
            settings: settings
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value])
                .collect(),
            dir: dir.to_owned(),
            port,
            kills: 0,
        };
        for role in ROLES {
            fleet.launch(role)?;
        }
        fleet.wait_for_api().await?;
        Ok(fleet)
    }

    /// Where the service answers.
    pub fn api(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn kills(&self) -> usize {
        self.kills
    }

    pub fn launch(&mut self, role: Role) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.settings);
        let log = match role {
            Role::Api => {
                command.args(["api", "--listen", &format!("127.0.0.1:{}", self.port)]);
                "api.log".to_owned()
            }
            Role::Relay(n) => {
                command.arg("relay");
                format!("relay-{n}.log")
            }
            Role::Consumer(n) => {
                command.arg("consumer");
                format!("consumer-{n}.log")
            }
        };
        let log = self.open_log(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a process of the shop")?;
        self.processes.push((role, child));
        Ok(())
    }

    fn open_log(&self, name: &str) -> anyhow::Result<File> {
        let path = self.dir.join(name);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Ends a process where it stands.
    pub async fn kill(&mut self, role: Role) -> anyhow::Result<()> {
        let Some(place) = self.processes.iter().position(|(running, _)| *running == role) else {
            bail!("{role:?} does not run");
        };
        let (_, mut child) = self.processes.swap_remove(place);
        if let Some(status) = child.try_wait()? {
            bail!(
                "{role:?} had ended by itself: {status}; see its log in {}",
                self.dir.display()
            );
        }
        child.kill().await?;
        self.kills += 1;
        Ok(())
    }

    /// Asks everybody to end in order.
    pub async fn stop(&mut self) {
        for (_, child) in &self.processes {
            if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
                let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
            }
        }
        for (role, mut child) in self.processes.drain(..) {
            if timeout(Duration::from_secs(20), child.wait()).await.is_err() {
                tracing::warn!(?role, "did not end when asked");
            }
        }
    }

    async fn wait_for_api(&self) -> anyhow::Result<()> {
        for _ in 0..300 {
            if reqwest::get(self.api()).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("the service did not start; see api.log in {}", self.dir.display());
    }
}
