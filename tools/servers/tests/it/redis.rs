//! A private Redis, seen from outside over its own protocol.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use posthaste_servers::RedisServer;

#[test]
fn a_killed_server_comes_back_empty_at_the_same_address() {
    let Some((_parent, server)) = start() else { return };
    let url = server.url();
    assert_eq!(ask(&url, "SET kept 1"), "+OK");

    server.kill().unwrap();
    assert!(!server.is_running());
    server.kill().expect("killing twice is no error");

    server.start_again().unwrap();
    assert!(server.is_running());
    assert_eq!(server.url(), url);
    assert_eq!(ask(&url, "EXISTS kept"), ":0");
}

#[test]
fn a_detached_server_runs_on_until_somebody_attaches() {
    let Some((_parent, server)) = start() else { return };
    let url = server.url();
    let home = server.detach();

    let server = RedisServer::attach(&home).unwrap();
    assert_eq!(server.url(), url);
    assert!(server.is_running());
    assert_eq!(ask(&url, "PING"), "+PONG");

    drop(server);
    assert!(!home.exists());
    assert!(RedisServer::attach(&home).is_err());
}

/// `None` where the test runner said that there is no Redis on this machine.
fn start() -> Option<(tempfile::TempDir, RedisServer)> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "redis") {
        return None;
    }
    let parent = tempfile::tempdir().expect("a temporary directory");
    let server = RedisServer::start(parent.path()).expect("a server");
    Some((parent, server))
}

fn ask(url: &str, command: &str) -> String {
    let address = url.strip_prefix("redis://").expect("a URL of Redis");
    let mut server = TcpStream::connect(address).expect("a connection");
    server
        .write_all(format!("{command}\r\n").as_bytes())
        .expect("a request");
    let mut answer = String::new();
    BufReader::new(server).read_line(&mut answer).expect("an answer");
    answer.trim_end().to_owned()
}
