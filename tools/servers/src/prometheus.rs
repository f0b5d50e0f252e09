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
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A Prometheus of our own. Dropping it ends it.
#[derive(Debug)]
pub struct PrometheusServer {
    process: Process,
    port: u16,
    guard: Option<Guard>,
    home: Home,
}

impl PrometheusServer {
    /// The environment variable that names the program. Without it, `prometheus` is looked for by `PATH`.
    pub const VARIABLE: &str = "POSTHASTE_PROMETHEUS";

    /// Whether the programs are on this machine: `prometheus`, and `promtool` beside it.
    pub fn is_installed() -> bool {
        Self::promtool().is_ok_and(|file| file.is_file())
    }

    /// The program that checks and tests rules.
    pub fn promtool() -> Result<PathBuf> {
        Ok(program()?.with_file_name("promtool"))
    }

    /// Starts one whose configuration and other files are given by name and text. `prometheus.yml` is the configuration,
    /// and what it names is relative to it. `arguments` are for the program.
    pub fn start(parent: &Path, files: &[(&str, &str)], arguments: &[&str]) -> Result<Self> {
        program()?;
        let home = Home::create(parent, "prometheus-", &Account::Ourselves, usize::MAX)?;
        let guard = Some(set_guard(&home)?);
        let mut server = Self {
            process: Process::of(home.path().to_owned()),
            port: 0,
            guard,
            home,
        };
        for (name, text) in files {
            server.write(name, text)?;
        }
        for _ in 0..PORT_TRIES {
            server.port = port::find_free()?;
            match server.launch(arguments) {
                Err(Error::PortTaken(_)) => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
        Err(Error::NoFreePort)
    }

    /// Writes a file beside its configuration, all at once: files that list targets are read as soon as they change.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.home.path().join(name);
        let draft = file.with_extension("draft");
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, &file))
            .map_err(Error::io(format!("write {}", file.display())))
    }

    /// The body of the answer to a GET request, such as `/api/v1/alerts`.
    pub fn get(&self, path: &str) -> Result<String> {
        let (status, body) = get(self.port, path).map_err(Error::io(format!("ask Prometheus for {path}")))?;
        if status == 200 {
            return Ok(body);
        }
        Err(Error::Failed {
            command: format!("GET {path}"),
            output: format!("{status}: {body}"),
        })
    }

    fn launch(&self, arguments: &[&str]) -> Result<()> {
        let _ = fs::remove_file(self.process.log());
        let mut command = Command::new(program()?);
        command
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .args(arguments);
        self.process.start(&mut command)?;
        if wait_until(
            START_TIMEOUT,
            || get(self.port, "/-/ready").is_ok_and(|(status, _)| status == 200) && self.process.is_alive(),
            || !self.process.is_alive(),
        ) {
            return Ok(());
        }
        let log = fs::read_to_string(self.process.log()).unwrap_or_default();
        if log.contains("address already in use") {
            return Err(Error::PortTaken(self.port));
        }
        Err(self.process.failed("prometheus"))
    }
}

impl Drop for PrometheusServer {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.process.end(Signal::SIGKILL, START_TIMEOUT);
        drop(self.guard.take());
    }
}

fn program() -> Result<PathBuf> {
    let (places, looked_in) = if let Some(file) = env::var_os(PrometheusServer::VARIABLE) {
        // What was asked for is used or refused, never replaced by something else.
        (vec![PathBuf::from(&file)], file.display().to_string())
    } else {
        let on_path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&on_path).map(|dir| dir.join("prometheus"));
        (places.collect(), "PATH".to_owned())
    };
    places
        .into_iter()
        .find(|file| file.is_file())
        .ok_or(Error::NotInstalled {
            server: "Prometheus",
            looked_in,
            variable: PrometheusServer::VARIABLE,
        })
}

/// HTTP/1.0, so that the body ends with the connection and is in one piece.
fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut server = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    server.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    write!(server, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    server.read_to_string(&mut answer)?;
    let parts = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    parts.ok_or_else(|| io::Error::other("no answer of HTTP"))
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

    const ITSELF: &str = "global: { scrape_interval: 200ms }\n\
        scrape_configs: [{ job_name: itself, file_sd_configs: [{ files: [targets.json] }] }]\n";

    #[test]
    fn targets_can_be_added_while_it_runs_and_it_goes_with_the_process_that_owned_it() {
        if test_setup::left_out("prometheus") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let files = [("prometheus.yml", ITSELF), ("targets.json", "[]")];
        let mut server = PrometheusServer::start(parent.path(), &files, &[]).unwrap();
        assert!(PrometheusServer::is_installed());
        assert!(server.get("/api/v1/nonsense").is_err());

        let targets = format!(r#"[{{ "targets": ["127.0.0.1:{}"] }}]"#, server.port);
        server.write("targets.json", &targets).unwrap();
        let is_up = || server.get("/api/v1/query?query=up").unwrap().contains("\"1\"");
        assert!(wait_until(START_TIMEOUT, is_up, || false));

        let guard = server.guard.take().expect("a new server has a guard");
        guard.pretend_that_we_died();
        assert!(wait_until(START_TIMEOUT, || !server.process.is_alive(), || false));
        assert!(!server.home.path().exists());
    }
}
