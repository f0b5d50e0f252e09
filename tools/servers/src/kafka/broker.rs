use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{jars::KafkaJars, listeners::Listeners, metadata::View};
use crate::{Error, Result, process::Process};

/// An orderly stop hands the leadership of every partition over first.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// One broker of a cluster, and its directory.
#[derive(Debug)]
pub(super) struct Broker {
    index: usize,
    listeners: Listeners,
    process: Process,
}

impl Broker {
    /// The broker with this index in the cluster at `home`, whether it runs or not.
    pub(super) fn of(home: &Path, index: usize, listeners: Listeners) -> Self {
        let process = Process::of(home.join(format!("broker-{}", index + 1)));
        Self {
            index,
            listeners,
            process,
        }
    }

    /// What Kafka calls `node.id`.
    pub(super) fn id(&self) -> i32 {
        i32::try_from(self.index).expect("a handful of brokers") + 1
    }

    pub(super) fn listeners(&self) -> Listeners {
        self.listeners
    }

    pub(super) fn data(&self) -> PathBuf {
        self.process.dir().join("data")
    }

    pub(super) fn properties_file(&self) -> PathBuf {
        self.process.dir().join("server.properties")
    }

    pub(super) fn configure(&self, properties: &str) -> Result<()> {
        let file = self.properties_file();
        fs::create_dir_all(self.process.dir())
            .and_then(|()| fs::write(&file, properties))
            .map_err(Error::io(format!("write {}", file.display())))
    }

    /// Starts the process, and does not wait for it. The log tells of this life only.
    pub(super) fn launch(&self, jars: &KafkaJars, log_config: &Path) -> Result<()> {
        let _ = fs::remove_file(self.process.log());
        self.process.start(jars.broker(log_config).arg(self.properties_file()))
    }

    /// Whether the broker answers, and knows that these brokers are up and their replicas in sync.
    pub(super) fn sees_whole(&self, running: &[i32]) -> bool {
        View::of(self.listeners.plain).is_ok_and(|view| view.is_whole(running))
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.is_alive()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.pid().map(|pid| pid.as_raw().unsigned_abs())
    }

    pub(super) fn kill(&self) -> Result<()> {
        self.process.end(Signal::SIGKILL, KILL_TIMEOUT)
    }

    pub(super) fn stop(&self) -> Result<()> {
        self.process.end(Signal::SIGTERM, STOP_TIMEOUT)
    }

    /// Why the broker did not come up, out of its log.
    pub(super) fn failed(&self) -> Error {
        let log = fs::read(self.process.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        if log.contains("Address already in use") {
            return Error::PortTaken(self.listeners.plain);
        }
        self.process.failed("kafka.Kafka")
    }
}
