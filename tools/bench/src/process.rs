//! A worker, as the measuring process sees it.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::worker::protocol::{Done, GO, READY, STOP, WorkOrder};

const START_TIMEOUT: Duration = Duration::from_mins(1);
pub(crate) const WORK_TIMEOUT: Duration = Duration::from_mins(15);

/// A worker. It ends with this value.
pub(crate) struct WorkerProcess {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    /// Starts a worker and waits until it is ready.
    pub(crate) async fn start(order: &WorkOrder) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", &serde_json::to_string(order)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        let stdin = child.stdin.take().context("a worker without standard input")?;
        let stdout = child.stdout.take().context("a worker without standard output")?;
        let lines = BufReader::new(stdout).lines();
        let mut worker = Self { child, stdin, lines };
        let line = timeout(START_TIMEOUT, worker.line())
            .await
            .context("a worker does not get ready")??;
        ensure!(line == READY, "a worker says {line}");
        Ok(worker)
    }

    /// Halts it until it is told to go.
    pub(crate) fn halt(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub(crate) async fn go(&mut self) -> anyhow::Result<()> {
        self.say(GO).await?;
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.child.id().context("a worker ended before its time")?;
        Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
    }

    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.say(STOP).await
    }

    /// Waits until the work is done and the process has ended.
    pub(crate) async fn done(&mut self) -> anyhow::Result<Done> {
        let line = timeout(WORK_TIMEOUT, self.line())
            .await
            .context("a worker does not come to an end")??;
        let done = serde_json::from_str(&line)?;
        self.child.wait().await?;
        Ok(done)
    }

    /// Ends it without warning.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    async fn say(&mut self, word: &str) -> anyhow::Result<()> {
        self.stdin.write_all(format!("{word}\n").as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        self.lines.next_line().await?.context("a worker ended before its time")
    }
}
