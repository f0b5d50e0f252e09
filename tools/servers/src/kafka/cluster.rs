use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{KafkaJars, KafkaOptions, broker::Broker, listeners::Listeners, storage, tls};
use crate::{Error, Result, account::Account, guard::Guard, home::Home, process::wait_until};

const PORT_TRIES: usize = 5;
const START_TIMEOUT: Duration = Duration::from_mins(3);

/// Where the listeners are noted for whoever attaches, one broker per line.
const LISTENERS_FILE: &str = "listeners";

/// An Apache Kafka cluster of our own. Dropping it ends the brokers and removes their data.
///
/// Topics are not created by themselves. A new one has three replicas by default, of which two must have a message
/// before it is acknowledged to a producer that asks for all.
///
/// Brokers are counted from 0. While most of them are down, the others have no controller: they are up again only
/// together with enough of the others.
#[derive(Debug)]
pub struct KafkaCluster {
    brokers: Vec<Broker>,
    guard: Option<Guard>,
    home: Home,
    ca_file: PathBuf,
    /// Not known of a cluster that another process started; then they are looked for when they are needed.
    jars: Option<KafkaJars>,
}

impl KafkaCluster {
    /// Starts three brokers with their data in a fresh directory below `parent`, and waits until all of them know each
    /// other.
    pub fn start(parent: &Path) -> Result<Self> {
        Self::start_with(parent, &KafkaOptions::default())
    }

    /// The same, with options.
    pub fn start_with(parent: &Path, options: &KafkaOptions) -> Result<Self> {
        Self::start_from(KafkaJars::find()?, parent, options)
    }

    pub(super) fn start_from(jars: KafkaJars, parent: &Path, options: &KafkaOptions) -> Result<Self> {
        let home = Home::create(parent, "kafka-", &Account::Ourselves, usize::MAX)?;
        let guard = Some(set_guard(&home)?);
        let ca_file = tls::ca_file(home.path());
        let mut cluster = Self {
            brokers: Vec::new(),
            guard,
            home,
            ca_file,
            jars: Some(jars),
        };
        storage::write_log_config(&cluster.log_config())?;
        if options.tls {
            tls::create(cluster.home.path())?;
        }
        for _ in 0..PORT_TRIES {
            match cluster.start_on(&Listeners::find(options)?, options) {
                Err(Error::PortTaken(_)) => cluster.kill_all()?,
                Err(error) => return Err(error),
                Ok(()) => return Ok(cluster),
            }
        }
        Err(Error::NoFreePort)
    }

    fn start_on(&mut self, listeners: &[Listeners], options: &KafkaOptions) -> Result<()> {
        let home = self.home.path();
        self.brokers = of_home(home, listeners);
        for (index, broker) in self.brokers.iter().enumerate() {
            broker.configure(&options.server_properties(index, &broker.data(), listeners, home))?;
        }
        storage::format(&self.brokers, &self.jars()?, &self.log_config())?;
        self.start_all_again()?;

        let lines: Vec<_> = listeners.iter().map(ToString::to_string).collect();
        let note = home.join(LISTENERS_FILE);
        fs::write(&note, lines.join("\n")).map_err(Error::io(format!("write {}", note.display())))
    }

    /// Lets the cluster run on without an owner. [`KafkaCluster::attach`] finds it again by the path given back.
    pub fn detach(mut self) -> PathBuf {
        self.guard = None;
        let home = self.home.path().to_owned();
        std::mem::forget(self);
        home
    }

    /// Becomes the owner of a cluster that was left with [`KafkaCluster::detach`], whether it still runs or not.
    pub fn attach(home: &Path) -> Result<Self> {
        let note = home.join(LISTENERS_FILE);
        let listeners: Vec<_> = fs::read_to_string(&note)
            .and_then(|lines| lines.lines().map(Listeners::parse).collect::<io::Result<_>>())
            .and_then(|lines: Vec<_>| {
                if lines.is_empty() {
                    Err(ErrorKind::InvalidData.into())
                } else {
                    Ok(lines)
                }
            })
            .map_err(Error::io(format!("read {}", note.display())))?;
        Ok(Self {
            brokers: of_home(home, &listeners),
            guard: None,
            home: Home::take_over(home.to_owned()),
            ca_file: tls::ca_file(home),
            jars: None,
        })
    }

    /// The processes of the brokers that were started, whose use of the machine can be looked at.
    pub fn pids(&self) -> Vec<u32> {
        self.brokers.iter().filter_map(Broker::pid).collect()
    }

    /// The brokers to connect to, as `bootstrap.servers` wants them.
    pub fn bootstrap(&self) -> String {
        bootstrap(self.brokers.iter().map(|broker| broker.listeners().plain))
    }

    /// The same for [`KafkaOptions::sasl_plain`], if that was asked for.
    pub fn sasl_bootstrap(&self) -> Option<String> {
        let ports: Option<Vec<_>> = self.brokers.iter().map(|broker| broker.listeners().sasl).collect();
        ports.map(bootstrap)
    }

    /// The same for [`KafkaOptions::tls`], if that was asked for.
    pub fn tls_bootstrap(&self) -> Option<String> {
        let ports: Option<Vec<_>> = self.brokers.iter().map(|broker| broker.listeners().tls).collect();
        ports.map(bootstrap)
    }

    /// The certificate a client has to trust for [`KafkaCluster::tls_bootstrap`].
    pub fn ca_file(&self) -> Option<&Path> {
        self.tls_bootstrap().map(|_| self.ca_file.as_path())
    }

    /// How many brokers there are, running or not.
    pub fn brokers(&self) -> usize {
        self.brokers.len()
    }

    /// Ends a broker as a crash would and waits until it is gone. Its data stays. Does nothing if it is not running.
    pub fn kill(&self, broker: usize) -> Result<()> {
        self.brokers[broker].kill()
    }

    /// Stops a broker in order, which takes a controller, and waits until it is gone. Its data stays. Does nothing if
    /// it is not running.
    pub fn stop(&self, broker: usize) -> Result<()> {
        self.brokers[broker].stop()
    }

    /// Starts an ended broker on the same ports, with its data, and waits until it and all others that run know each
    /// other and their replicas are in sync again.
    pub fn start_again(&self, broker: usize) -> Result<()> {
        self.launch(&self.brokers[broker])?;
        self.wait_until_up()
    }

    /// Ends all brokers as a power failure would.
    pub fn kill_all(&self) -> Result<()> {
        self.brokers.iter().try_for_each(Broker::kill)
    }

    /// Starts all brokers that do not run, and waits until all know each other and their replicas are in sync again.
    pub fn start_all_again(&self) -> Result<()> {
        self.brokers.iter().try_for_each(|broker| self.launch(broker))?;
        self.wait_until_up()
    }

    /// Whether all brokers' processes are alive.
    pub fn is_running(&self) -> bool {
        self.brokers.iter().all(Broker::is_running)
    }

    fn launch(&self, broker: &Broker) -> Result<()> {
        if broker.is_running() {
            return Ok(());
        }
        broker.launch(&self.jars()?, &self.log_config())
    }

    fn wait_until_up(&self) -> Result<()> {
        let running: Vec<_> = self.brokers.iter().filter(|broker| broker.is_running()).collect();
        let ids: Vec<_> = running.iter().map(|broker| broker.id()).collect();
        for broker in &running {
            let ended = || running.iter().any(|broker| !broker.is_running());
            if !wait_until(START_TIMEOUT, || broker.sees_whole(&ids), ended) {
                let to_blame = running.iter().find(|broker| !broker.is_running()).unwrap_or(broker);
                return Err(to_blame.failed());
            }
        }
        Ok(())
    }

    fn jars(&self) -> Result<KafkaJars> {
        self.jars.clone().map_or_else(KafkaJars::find, Ok)
    }

    fn log_config(&self) -> PathBuf {
        self.home.path().join("log4j2.properties")
    }
}

impl Drop for KafkaCluster {
    fn drop(&mut self) {
        // There is nobody left to tell, and the data goes next, without which no broker can live on.
        let _ = self.kill_all();
    }
}

fn of_home(home: &Path, listeners: &[Listeners]) -> Vec<Broker> {
    (0..)
        .zip(listeners)
        .map(|(index, listeners)| Broker::of(home, index, *listeners))
        .collect()
}

fn bootstrap(ports: impl IntoIterator<Item = u16>) -> String {
    let addresses: Vec<_> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    addresses.join(",")
}

/// Does what dropping does, for the case that nothing is dropped.
fn set_guard(home: &Home) -> Result<Guard> {
    // A broker that is about to end may still write.
    let clean_up = r#"kill -9 $(cat "$1"/broker-*/pid); sleep 0.2; rm -rf "$1""#;
    Guard::set(&Account::Ourselves, clean_up, [home.path()])
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::test_setup;

    /// `None` where the test runner said that there is no Kafka on this machine.
    fn one_broker() -> Option<(tempfile::TempDir, KafkaCluster)> {
        if test_setup::left_out("kafka") {
            return None;
        }
        let parent = tempfile::tempdir().unwrap();
        let options = KafkaOptions {
            brokers: 1,
            ..KafkaOptions::default()
        };
        let cluster = KafkaCluster::start_with(parent.path(), &options).unwrap();
        Some((parent, cluster))
    }

    #[test]
    fn the_brokers_go_with_the_process_that_owned_them() {
        let Some((_parent, mut cluster)) = one_broker() else {
            return;
        };
        let guard = cluster.guard.take().expect("a new cluster has a guard");

        guard.pretend_that_we_died();

        // In the end a broker gives up by itself when its data is gone, but that takes longer.
        assert!(wait_until(Duration::from_secs(5), || !cluster.is_running(), || false));
        assert!(!cluster.home.path().exists());
    }

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let Some((_parent, cluster)) = one_broker() else { return };
        cluster.kill(0).unwrap();
        let port = cluster.brokers[0].listeners().plain;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(matches!(cluster.start_again(0), Err(Error::PortTaken(taken)) if taken == port));
        drop(listener);

        fs::write(cluster.brokers[0].properties_file(), "nonsense").unwrap();
        let error = cluster.start_again(0).unwrap_err();
        assert!(error.to_string().contains("process.roles"), "{error}");
    }
}
