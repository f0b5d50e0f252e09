//! The relay of the demonstration: a process of its own, so that it can be killed.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use posthaste_core::{Backoff, RetryPolicy};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::SqliteStore;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{Stage, sink};
use crate::config::LogConfig;
use crate::logging;

/// How long a relay may take to stop.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// Serve the demonstration whose files are in DIRECTORY
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct DemoRelay {
    directory: PathBuf,
}

impl DemoRelay {
    pub async fn run(self) -> anyhow::Result<()> {
        logging::start(&LogConfig::default())?;
        let stage = Stage(self.directory);
        let store = SqliteStore::connect(stage.database()).await?;
        let publisher = sink::publisher(&stage)?;
        let stop = CancellationToken::new();
        stop_when_orphaned(stop.clone());
        Relay::new(store, publisher).config(config()).run_until(stop).await?;
        Ok(())
    }
}

/// A short lease, so that a killed relay's messages do not wait long, and a long time for a sink that is down.
fn config() -> RelayConfig {
    RelayConfig {
        lease: Duration::from_millis(1500),
        poll_interval: Duration::from_millis(10),
        max_poll_interval: Duration::from_millis(100),
        batch_size: 100,
        max_in_flight: 400,
        retry: RetryPolicy {
            max_attempts: 10_000,
            backoff: Backoff::Schedule {
                delays: vec![Duration::from_millis(100), Duration::from_millis(250)],
            },
        },
        ..RelayConfig::default()
    }
}

/// Standard input is a pipe from the demonstration: it ends when that wants us to stop, and when it has died.
fn stop_when_orphaned(stop: CancellationToken) {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stop.cancel();
    });
}

/// A relay's process, seen from outside.
pub(super) struct RelayProcess {
    child: Child,
    stage: Stage,
}

impl RelayProcess {
    pub(super) fn start(stage: &Stage) -> anyhow::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(stage.relay_log())?;
        let child = Command::new(std::env::current_exe()?)
            .arg("demo-relay")
            .arg(&stage.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the relay's process")?;
        Ok(Self {
            child,
            stage: stage.clone(),
        })
    }

    /// SIGKILL: no goodbye, no cleaning up.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the relay ended by itself; {}", self.last_words());
        Ok(self.child.kill().await?)
    }

    /// Asks it to stop, and waits.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = tokio::time::timeout(DELIVERY_TIMEOUT, self.child.wait())
            .await
            .context("the relay does not stop")??;
        ensure!(status.success(), "the relay failed; {}", self.last_words());
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.stage.relay_log()).unwrap_or_default();
        format!("its last words: {}", log.lines().last().unwrap_or("none"))
    }
}
