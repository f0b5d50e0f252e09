//! One Prometheus with the shipped rules for all tests, and relays that it watches.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use posthaste_servers::PrometheusServer;
use serde_json::Value;

use crate::faster::faster;
use crate::receiver::free_port;
use crate::support::{Background, Place};

/// The slowest condition lasts for ten seconds; the rest is for a busy machine.
const TIMEOUT: Duration = Duration::from_mins(3);

/// The shipped rules with shorter limits, so that their conditions are soon true, and over.
const PRINT: [&str; 6] = ["alerts", "print", "--window", "6m", "--oldest-age", "3s"];

const CONFIGURATION: &str = "
global: { scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 250ms }
rule_files: [rules.yml]
scrape_configs: [{ job_name: posthaste, file_sd_configs: [{ files: ['target-*.json'] }] }]
";

/// Whether the test runner said that this machine has no such server.
pub fn without(server: &str) -> bool {
    std::env::var("POSTHASTE_TEST_WITHOUT").is_ok_and(|list| list.split(',').any(|missing| missing == server))
}

/// The Prometheus that all tests share; `None` where there is none.
pub fn prometheus() -> Option<&'static PrometheusServer> {
    static SERVER: OnceLock<PrometheusServer> = OnceLock::new();
    if without("prometheus") {
        return None;
    }
    Some(SERVER.get_or_init(|| {
        let rules = Place::empty().run(&PRINT).success().stdout;
        let rules = faster(&rules);
        let files = [("prometheus.yml", CONFIGURATION), ("rules.yml", rules.as_str())];
        // What was not scraped for so long counts as gone; five minutes on the slow clock.
        let arguments = ["--query.lookback-delta=5s"];
        PrometheusServer::start(Path::new(env!("CARGO_TARGET_TMPDIR")), &files, &arguments).unwrap()
    }))
}

/// What an expression is at present: a value for each series.
pub fn query(prometheus: &PrometheusServer, expression: &str) -> Vec<Value> {
    let encoded = expression.bytes().map(|byte| format!("%{byte:02x}"));
    let encoded = encoded.collect::<Vec<_>>().concat();
    let answer = prometheus.get(&format!("/api/v1/query?query={encoded}")).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["data"]["result"].as_array().unwrap().clone()
}

/// A relay that Prometheus scrapes, under a name of its own.
pub struct Watched {
    prometheus: &'static PrometheusServer,
    job: &'static str,
    pub place: Place,
    args: Vec<String>,
    relay: Option<Background>,
}

impl Watched {
    /// Counts often, so that the tests need not wait for the janitor.
    pub fn start(
        prometheus: &'static PrometheusServer,
        job: &'static str,
        place: Place,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let port = free_port();
        let target = format!(r#"[{{ "targets": ["127.0.0.1:{port}"], "labels": {{ "job": "{job}" }} }}]"#);
        prometheus.write(&format!("target-{job}.json"), &target).unwrap();
        let listen = format!("metrics.listen=127.0.0.1:{port}");
        let often = ["run", "--set", &listen, "--set", "relay.janitor_interval=300ms"].map(str::to_owned);
        let mut watched = Self {
            prometheus,
            job,
            place,
            args: often.into_iter().chain(args.into_iter().map(Into::into)).collect(),
            relay: None,
        };
        watched.start_again(&[]);
        watched
    }

    pub fn start_again(&mut self, environment: &[(&str, &str)]) {
        let args: Vec<_> = self.args.iter().map(String::as_str).collect();
        let mut command = self.place.command(&args);
        command.envs(environment.iter().copied());
        self.relay = Some(self.place.start_command(command));
    }

    pub fn stop(&mut self) {
        let mut relay = self.relay.take().expect("a relay that runs");
        relay.signal(Signal::SIGTERM);
        assert_eq!(relay.exit_code(), Some(0), "{}", self.place.read("log"));
    }

    /// Waits until all of these alerts fire for this relay.
    #[track_caller]
    pub fn fires(&self, alerts: &[&str]) {
        let all_fire = || {
            let firing = self.alerts(&["firing"]);
            alerts.iter().all(|alert| firing.contains(*alert))
        };
        self.eventually(&format!("{alerts:?} fire"), all_fire);
    }

    /// Waits until none of these alerts fires for this relay any more, while Prometheus still watches it.
    #[track_caller]
    pub fn clears(&self, alerts: &[&str]) {
        let none_fires = || {
            let active = self.alerts(&["firing", "pending"]);
            self.shows("outbox_healthy") && !alerts.iter().any(|alert| active.contains(*alert))
        };
        self.eventually(&format!("{alerts:?} clear"), none_fires);
    }

    /// Waits until Prometheus has scraped a metric of this relay.
    #[track_caller]
    pub fn is_scraped(&self) {
        self.eventually("it is scraped", || self.shows("outbox_healthy"));
    }

    /// The names of its alerts that are in one of these states.
    pub fn alerts(&self, states: &[&str]) -> BTreeSet<String> {
        let answer: Value = serde_json::from_str(&self.prometheus.get("/api/v1/alerts").unwrap()).unwrap();
        let alerts = answer["data"]["alerts"].as_array().unwrap().clone();
        let of_ours = |alert: &Value| {
            let is_meant = alert["labels"]["job"] == self.job && states.iter().any(|state| alert["state"] == *state);
            is_meant.then(|| alert["labels"]["alertname"].as_str().unwrap().to_owned())
        };
        alerts.iter().filter_map(of_ours).collect()
    }

    fn shows(&self, metric: &str) -> bool {
        !query(self.prometheus, &format!("{metric}{{job=\"{}\"}}", self.job)).is_empty()
    }

    #[track_caller]
    pub fn eventually(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds() {
            assert!(
                Instant::now() < deadline,
                "{}: never: {what}; firing: {:?}, pending: {:?}; the relay's log:\n{}",
                self.job,
                self.alerts(&["firing"]),
                self.alerts(&["pending"]),
                self.place.read("log"),
            );
            thread::sleep(Duration::from_millis(100));
        }
    }
}
