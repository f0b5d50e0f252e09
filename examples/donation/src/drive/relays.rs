//! The relay as a process of its own, so that it can be killed.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub struct Relays {
    running: Option<Child>,
    database_url: String,
    webhook_url: String,
    dir: PathBuf,
}

impl Relays {
    pub fn new(database_url: &str, webhook_url: &str, dir: &Path) -> Self {
        Self {
            running: None,
            database_url: database_url.to_owned(),
            webhook_url: webhook_url.to_owned(),
            dir: dir.to_owned(),
        }
    }

    /// Starts a relay on the map's policy, only quicker: nobody wants to wait five minutes here.
    pub fn launch(&mut self) -> anyhow::Result<()> {
        let path = self.dir.join("relay.log");
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("cannot write {}", path.display()))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["relay", "--poll", "200ms", "--stalled-after", "5s", "--retry", "1s"])
            .env("DATABASE_URL", &self.database_url)
            .env("WEBHOOK_URL", &self.webhook_url)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the relay")?;
        self.running = Some(child);
        Ok(())
    }

    /// Ends the relay where it stands.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.running.take() {
            let ended = child.try_wait()?;
            anyhow::ensure!(
                ended.is_none(),
                "the relay had ended by itself; see relay.log in {}",
                self.dir.display()
            );
            child.kill().await?;
        }
        Ok(())
    }

    /// Asks the relay to end in order.
    pub async fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM);
            }
            if timeout(Duration::from_secs(20), child.wait()).await.is_err() {
                tracing::warn!("the relay did not end when asked");
            }
        }
    }
}
