//! What the listener gives away, and to whom.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::probes::{get, json, start};
use crate::support::{Place, TO_STDOUT, eventually};

const PATHS: [&str; 4] = ["/metrics", "/healthz", "/readyz", "/status.json"];

fn answer(port: u16, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn ready(port: u16) -> bool {
    json(port, "/readyz").is_some_and(|(status, _)| status == 200)
}

/// Messages that are not delivered: they wait for their time.
fn enqueue_for_later(place: &Place, count: usize) {
    for _ in 0..count {
        place.enqueue(&["--topic", "a", "--payload", "1"]);
    }
    place.sql("update posthaste_outbox set next_attempt_at = next_attempt_at + 3600000");
}

/// Proves P35.
#[test]
fn it_is_reached_from_this_machine_alone_and_changes_nothing() {
    let place = Place::with_sqlite().migrated();
    for listen in ["0.0.0.0:9464", "[::]:9464", "192.168.1.2:9464"] {
        let set = format!("metrics.listen={listen}");
        place
            .run(&[&["run", "--set", &set][..], &TO_STDOUT].concat())
            .fails_with(&["can be reached from other machines", "metrics.allow_remote"]);
    }

    enqueue_for_later(&place, 1);
    let (_relay, port) = start(&place, &TO_STDOUT);
    eventually("the relay is ready", || ready(port));
    let other = TcpStream::connect_timeout(&([127, 0, 0, 2], port).into(), Duration::from_secs(5));
    other.expect_err("it listens on one address, not on all");

    let before = place.status();
    for path in PATHS {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let (status, body) = answer(port, method, path);
            assert_eq!(status, 405, "{method} {path}: {body}");
            assert!(body.contains("only be read"), "{body}");
        }
        assert_eq!(answer(port, "GET", path).0, 200, "{path}");
    }
    // What other tools have behind such paths.
    for path in [
        "/replay",
        "/dead",
        "/purge",
        "/-/quit",
        "/-/reload",
        "/shutdown",
        "/debug/pprof",
        "/admin",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(answer(port, method, path).0, 404, "{method} {path}");
        }
    }
    assert_eq!(place.status()["waiting"], before["waiting"]);
    assert_eq!(before["waiting"], 1);
    assert!(ready(port));
}

#[test]
fn what_is_not_there_says_what_is() {
    let place = Place::with_sqlite().migrated();
    let (_relay, port) = start(&place, &TO_STDOUT);
    eventually("the relay answers", || get(port, "/healthz").is_some());
    let (status, body) = answer(port, "GET", "/health");
    let hint: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &hint["paths"]), (404, &PATHS.as_slice().into()));
}

#[test]
fn the_status_tells_everything_that_the_relay_knows_of_itself() {
    let place = Place::with_sqlite().migrated();
    enqueue_for_later(&place, 3);
    let (_relay, port) = start(&place, &TO_STDOUT);
    let status = || json(port, "/status.json").map(|(_, status)| status).unwrap_or_default();
    eventually("the janitor has counted", || status()["backlog"]["pending"] == 3);
    let status = status();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["relay"], &status["alive"]), (&"running".into(), &true.into()));
    assert_eq!(
        (&status["leadership"], &status["circuit"]),
        (&"shared".into(), &"closed".into())
    );
    assert_eq!(
        (&status["namespace"], &status["publisher"]),
        (&"default".into(), &"stdout".into())
    );
    assert_eq!(
        (&status["database"]["ok"], &status["in_flight"]["messages"]),
        (&true.into(), &0.into())
    );
    for number in ["uptime_seconds", "seconds_since_claim"] {
        assert!(
            status[number].as_f64().is_some_and(|seconds| seconds < 60.0),
            "{status}"
        );
    }
    let tasks = status["tasks"].as_array().unwrap();
    let names: Vec<_> = tasks.iter().map(|task| task["task"].as_str().unwrap()).collect();
    assert_eq!(names, ["claiming", "settling", "renewing leases"], "{status}");
    assert!(tasks.iter().all(|task| task["state"] != "stalled"), "{status}");
    let relays = place.status();
    assert!(relays.to_string().contains(status["id"].as_str().unwrap()), "{relays}");
}

/// In a rolling update the new relay stands by until the old one ends, which waits for the new one to be ready.
#[test]
fn a_relay_that_stands_by_is_ready_and_says_so() {
    let place = Place::with_sqlite().migrated();
    let exclusive = [&TO_STDOUT[..], &["--set", "relay.exclusive=true"]].concat();
    let (first, one) = start(&place, &exclusive);
    let is = |port: u16, leadership: &str| {
        json(port, "/readyz").is_some_and(|(status, body)| status == 200 && body["leadership"] == leadership)
    };
    eventually("the first relay leads", || is(one, "leader"));
    let (_second, two) = start(&place, &exclusive);
    eventually("the second one stands by, and is ready", || is(two, "standby"));
    let leader = json(one, "/status.json").unwrap().1["id"].clone();
    eventually("it says who leads", || {
        json(two, "/readyz").unwrap().1["leader"] == leader
    });
    first.signal(nix::sys::signal::Signal::SIGTERM);
    eventually("the second one takes over", || is(two, "leader"));
}
