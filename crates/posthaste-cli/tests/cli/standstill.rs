//! Relays that stand still, and what their probes say.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use posthaste_servers::{PostgresServer, StopMode};
use serde_json::Value;

use crate::probes::{get, json, start};
use crate::support::{Place, TO_STDOUT, eventually, without_postgres};

fn status(port: u16, path: &str) -> Option<u16> {
    get(port, path).map(|(status, _)| status)
}

fn problem(port: u16, path: &str) -> Option<String> {
    let (status, body): (u16, Value) = json(port, path)?;
    (status == 503).then(|| body["problem"].as_str().unwrap_or_default().to_owned())
}

fn postgres() -> Option<(PostgresServer, Place)> {
    if without_postgres() {
        return None;
    }
    let server = PostgresServer::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let place = Place::empty()
        .set("DATABASE__URL", &server.url())
        .set("DATABASE__ACQUIRE_TIMEOUT", "2s")
        .migrated();
    Some((server, place))
}

/// All processes of a server, stopped until this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn all_of(server: &PostgresServer) -> Self {
        let directory = tokio::runtime::Runtime::new().unwrap().block_on(async {
            use sqlx::Connection;
            let mut conn = sqlx::PgConnection::connect(&server.url()).await.unwrap();
            let query = sqlx::query_scalar::<_, String>("select current_setting('data_directory')");
            query.fetch_one(&mut conn).await.unwrap()
        });
        let file = std::fs::read_to_string(Path::new(&directory).join("postmaster.pid")).unwrap();
        let main: i32 = file.lines().next().unwrap().parse().unwrap();
        let children = || std::fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap();
        // The main process first, so that it starts no others.
        let mut all = vec![Pid::from_raw(main)];
        kill(all[0], Signal::SIGSTOP).unwrap();
        all.extend(
            children()
                .split_whitespace()
                .map(|pid| Pid::from_raw(pid.parse().unwrap())),
        );
        for pid in &all[1..] {
            // One may have ended meanwhile.
            let _ = kill(*pid, Signal::SIGSTOP);
        }
        Self(all)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

#[test]
fn a_database_that_hangs_makes_an_idle_relay_unready_within_seconds() {
    let Some((server, place)) = postgres() else { return };
    let (_relay, port) = start(&place, &TO_STDOUT);
    eventually("the relay is ready", || status(port, "/readyz") == Some(200));
    let stopped = Stopped::all_of(&server);
    let since = Instant::now();
    eventually("it misses the answer", || problem(port, "/readyz").is_some());
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    let problem = problem(port, "/readyz").unwrap();
    assert!(problem.contains("claiming"), "{problem}");
    assert_eq!(status(port, "/healthz"), Some(200), "a restart would not help");
    let (_, known) = json(port, "/status.json").unwrap();
    assert_eq!(known["database"]["ok"], false, "{known}");
    drop(stopped);
    eventually("it goes on by itself", || status(port, "/readyz") == Some(200));
}

/// Nothing is claimed then, so that no claim could find out.
#[test]
fn a_database_that_stops_while_the_circuit_is_open_is_missed() {
    let Some((server, place)) = postgres() else { return };
    for _ in 0..6 {
        place.enqueue(&["--topic", "a", "--payload", "1"]);
    }
    let unavailable = [
        "--set",
        "publisher.kind=http",
        "--set",
        "publisher.url=http://127.0.0.1:1/x",
        "--set",
        "relay.breaker.open_for=1h",
    ];
    let (_relay, port) = start(&place, &unavailable);
    let has_nothing_to_ask = |known: &Value| {
        let waits = |task: usize| known["tasks"][task]["waits_for"].clone();
        known["circuit"] == "open" && waits(0) == "the broker" && waits(1) == "outcomes"
    };
    eventually("the circuit is open, and all is written", || {
        json(port, "/status.json")
            .is_some_and(|(_, known)| known["in_flight"]["messages"] == 0 && has_nothing_to_ask(&known))
    });
    assert_eq!(status(port, "/readyz"), Some(200));
    server.stop(StopMode::Fast).unwrap();
    let since = Instant::now();
    eventually("it misses its database", || problem(port, "/readyz").is_some());
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    server.start_again().unwrap();
    eventually("it finds it again", || status(port, "/readyz") == Some(200));
}

/// A task lives that does nothing: only a restart would help, unless it goes on by itself.
#[cfg(feature = "failpoints")]
#[test]
fn a_task_that_stands_still_fails_both_probes_with_its_name_until_it_goes_on() {
    for (point, task) in [("before_claim", "claiming"), ("before_settle", "settling")] {
        let place = Place::with_sqlite()
            .set("RELAY__STORE_TIMEOUT", "1s")
            .env("FAILPOINTS", &format!("{point}=1*sleep(14000)"))
            .migrated();
        place.enqueue(&["--topic", "a", "--payload", "1"]);
        let (_relay, port) = start(&place, &TO_STDOUT);
        let told = format!("{task} stands still: no sign of life for ");
        for path in ["/healthz", "/readyz"] {
            eventually("the standstill is seen", || {
                problem(port, path).is_some_and(|problem| problem.contains(&told))
            });
        }
        let figure = format!("outbox_task_stalled{{namespace=\"default\",task=\"{task}\"}}");
        let shows = |value: u8| {
            let (_, figures) = get(port, "/metrics").unwrap();
            figures.contains(&format!("{figure} {value}"))
        };
        eventually("the figures show it", || shows(1));
        eventually("it goes on", || {
            status(port, "/healthz") == Some(200) && status(port, "/readyz") == Some(200)
        });
        eventually("the figures show that too", || shows(0));
        let log = place.read("log");
        assert_eq!(log.matches(&format!("{task} stands still")).count(), 1, "{log}");
        assert_eq!(log.matches(&format!("{task} goes on")).count(), 1, "{log}");
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn a_relay_whose_task_dies_ends_and_names_it() {
    let place = Place::with_sqlite().env("FAILPOINTS", "before_settle=panic").migrated();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    let (mut relay, _) = start(&place, &TO_STDOUT);
    assert_eq!(relay.exit_code(), Some(1));
    let log = place.read("log");
    assert!(
        log.lines()
            .any(|line| line.starts_with("error:") && line.contains("settling")),
        "{log}"
    );
}
