//! The address of metrics and probes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use posthaste_servers::{PostgresServer, StopMode};
use serde_json::Value;

use crate::support::{Background, Place, TO_STDOUT, eventually, without_postgres};

/// A relay with its metrics on a port that was free a moment ago.
pub fn start(place: &Place, args: &[&str]) -> (Background, u16) {
    let port = free_port();
    let listen = format!("metrics.listen=127.0.0.1:{port}");
    let relay = place.start(&[&["run", "--set", &listen], args].concat());
    (relay, port)
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The status and the body of the answer, if there is one.
pub fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.set_read_timeout(Some(Duration::from_secs(15))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

pub fn json(port: u16, path: &str) -> Option<(u16, Value)> {
    let (status, body) = get(port, path)?;
    Some((status, serde_json::from_str(&body).unwrap()))
}

#[test]
fn metrics_and_probes_have_paths_of_their_own() {
    let place = Place::with_sqlite().migrated();
    let (mut relay, port) = start(&place, &TO_STDOUT);
    eventually("the relay is ready", || {
        json(port, "/readyz").is_some_and(|(status, _)| status == 200)
    });
    let (_, health) = json(port, "/readyz").unwrap();
    assert_eq!(
        (&health["ready"], &health["relay"], &health["circuit"]),
        (&true.into(), &"running".into(), &"closed".into())
    );
    assert_eq!(get(port, "/healthz").unwrap().0, 200);
    let (status, figures) = get(port, "/metrics").unwrap();
    assert!(
        status == 200 && figures.contains("# TYPE outbox_circuit_state gauge"),
        "{figures}"
    );
    for path in ["/", "/nonsense", "/livez", "/metrics/", "/health"] {
        assert_eq!(get(port, path).unwrap().0, 404, "{path}");
    }
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
}

#[test]
fn an_open_circuit_is_reported_and_does_not_make_a_relay_unready() {
    let place = Place::with_sqlite().migrated();
    for _ in 0..6 {
        place.enqueue(&["--topic", "a", "--payload", "1"]);
    }
    let unavailable = [
        "--set",
        "publisher.kind=http",
        "--set",
        "publisher.url=http://127.0.0.1:1/x",
    ];
    let (_relay, port) = start(&place, &unavailable);
    eventually("the circuit opens", || {
        json(port, "/readyz").is_some_and(|(_, health)| health["circuit"] == "open")
    });
    let (status, health) = json(port, "/readyz").unwrap();
    assert_eq!(status, 200, "{health}");
    assert!(
        health["circuit_reason"].as_str().unwrap().contains("127.0.0.1:1"),
        "{health}"
    );
}

#[test]
fn a_publisher_of_several_that_is_unavailable_is_named_by_probes_and_status() {
    let place = Place::with_sqlite().migrated();
    place.write(
        "posthaste.toml",
        "[[publishers]]\nname = 'partner'\nkind = 'http'\nurl = 'http://127.0.0.1:1/x'\n\
         [[publishers]]\nname = 'archive'\nkind = 'file'\npath = 'archive.jsonl'\n\
         [[routes]]\ntopic = 'orders'\nto = 'partner'\n[[routes]]\nto = 'archive'\n",
    );
    for _ in 0..6 {
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
    }
    let (_relay, port) = start(&place, &[]);
    let reason = |answer: &Value| answer["unavailable"]["partner"].as_str().map(str::to_owned);
    eventually("the destination is named", || {
        json(port, "/readyz").is_some_and(|(_, health)| reason(&health).is_some())
    });
    let (status, health) = json(port, "/readyz").unwrap();
    assert_eq!((status, &health["circuit"]), (200, &"closed".into()), "{health}");
    assert!(reason(&health).unwrap().contains("127.0.0.1:1"), "{health}");
    assert_eq!(health["unavailable"].as_object().unwrap().len(), 1, "{health}");
    let said = || place.run(&["status"]).success().stdout;
    eventually("the relay tells the database", || {
        said().contains("but unavailable: partner: publisher partner: HTTP receiver 127.0.0.1:1")
    });
}

#[test]
fn a_relay_without_its_database_is_alive_and_not_ready() {
    if without_postgres() {
        return;
    }
    let server = PostgresServer::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let place = Place::empty()
        .set("DATABASE__URL", &url)
        .set("DATABASE__ACQUIRE_TIMEOUT", "2s")
        .migrated();
    server.stop(StopMode::Fast).unwrap();
    let (mut relay, port) = start(&place, &TO_STDOUT);
    let ready = |expected: u16| json(port, "/readyz").is_some_and(|(status, _)| status == expected);
    eventually("the relay answers", || ready(503));
    assert_eq!(json(port, "/readyz").unwrap().1["relay"], "starting");
    assert_eq!(get(port, "/healthz").unwrap().0, 200);
    server.start_again().unwrap();
    eventually("it has found its database", || ready(200));
    server.stop(StopMode::Fast).unwrap();
    let claiming_fails = |(status, health): (u16, Value)| {
        let problem = health["problem"].as_str().unwrap_or_default();
        status == 503 && problem.contains("claiming fails: ")
    };
    eventually("it misses its database", || {
        json(port, "/readyz").is_some_and(claiming_fails)
    });
    assert_eq!(
        get(port, "/healthz").unwrap().0,
        200,
        "a restart would not bring the database back"
    );
    server.start_again().unwrap();
    eventually("it goes on by itself", || ready(200));
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
}

/// Without a limit they would take all of the process's file descriptors, and a database that was restarted would not be
/// reached again.
#[test]
fn connections_that_ask_nothing_keep_no_relay_from_its_database() {
    const DESCRIPTORS: usize = 120;
    if without_postgres() {
        return;
    }
    let server = PostgresServer::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let place = Place::empty()
        .set("DATABASE__URL", &url)
        .set("DATABASE__ACQUIRE_TIMEOUT", "2s")
        .migrated();
    let port = free_port();
    let listen = format!("metrics.listen=127.0.0.1:{port}");
    let args = [&["run", "--set", &listen], &TO_STDOUT[..]].concat();
    let _relay = place.start_command(place.command_with_descriptors(DESCRIPTORS, &args));
    let ready = || json(port, "/readyz").is_some_and(|(status, _)| status == 200);
    eventually("the relay is ready", ready);

    let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let idle: Vec<TcpStream> = (0..DESCRIPTORS + 30).map(connect).collect();
    server.stop(StopMode::Fast).unwrap();
    server.start_again().unwrap();
    let id = place.enqueue(&["--topic", "a", "--payload", "1"]);
    eventually("the message is delivered", || place.read("out").contains(&id));
    eventually("probes are answered again", ready);
    drop(idle);
}

#[test]
fn an_address_that_is_taken_is_named_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("metrics.listen={}", taken.local_addr().unwrap());
    Place::empty()
        .run(&["run", "--set", &listen])
        .fails_with(&["metrics.listen = \"127.0.0.1:", "choose a free port"]);
    Place::empty()
        .run(&["run", "--check", "--set", &listen])
        .fails_with(&["metrics.listen = \"127.0.0.1:", "choose a free port"]);
}
