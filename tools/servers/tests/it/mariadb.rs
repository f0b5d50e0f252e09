//! A private MariaDB, seen from outside with its own client.

use std::process::{Command, Output};

use posthaste_servers::{MariaDbOptions, MariaDbServer, StopMode};

#[test]
fn data_survives_an_immediate_stop() {
    let Some((_parent, server)) = start(&MariaDbOptions::default()) else {
        return;
    };
    assert!(server.is_running());
    query(
        &server,
        "create database kept; create table kept.t as select 42 as answer",
    );

    server.stop(StopMode::Immediate).unwrap();
    assert!(!server.is_running());
    assert!(!mariadb(&server, "select 1").status.success());
    server.stop(StopMode::Fast).expect("stopping twice is no error");

    server.start_again().unwrap();
    assert_eq!(query(&server, "select answer from kept.t"), "42");
    server.stop(StopMode::Fast).unwrap();
    assert!(!server.is_running());
}

#[test]
fn two_servers_live_side_by_side_and_dropping_removes_one() {
    let Some((parent, first)) = start(&MariaDbOptions::default()) else {
        return;
    };
    let second = MariaDbServer::start(parent.path()).unwrap();
    assert_ne!(first.port(), second.port());
    assert_eq!(parent.path().read_dir().unwrap().count(), 2);

    drop(first);

    assert_eq!(query(&second, "select 1"), "1");
    drop(second);
    assert_eq!(parent.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_detached_server_runs_on_until_somebody_attaches() {
    let Some((_parent, server)) = start(&MariaDbOptions::default()) else {
        return;
    };
    let url = server.url();
    let home = server.detach();

    let server = MariaDbServer::attach(&home).unwrap();
    assert_eq!(server.url(), url);
    assert!(server.is_running());
    assert_eq!(query(&server, "select 1"), "1");

    drop(server);
    assert!(!home.exists());
    assert!(MariaDbServer::attach(&home).is_err());
}

#[test]
fn settings_are_those_of_the_options() {
    let options = MariaDbOptions {
        durable: true,
        settings: vec![("wait-timeout".into(), "77".into())],
    };
    let Some((_parent, server)) = start(&options) else {
        return;
    };
    for (name, value) in [
        ("innodb_flush_log_at_trx_commit", "1"),
        ("innodb_doublewrite", "1"),
        ("wait_timeout", "77"),
        ("max_connections", "300"),
    ] {
        assert_eq!(query(&server, &format!("select @@global.{name}")), value, "{name}");
    }
}

/// `None` where the test runner said that there is no MariaDB on this machine.
fn start(options: &MariaDbOptions) -> Option<(tempfile::TempDir, MariaDbServer)> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "mariadb") {
        return None;
    }
    let parent = tempfile::tempdir().expect("a temporary directory");
    let server = MariaDbServer::start_with(parent.path(), options).expect("a server");
    Some((parent, server))
}

fn query(server: &MariaDbServer, sql: &str) -> String {
    let done = mariadb(server, sql);
    assert!(
        done.status.success(),
        "{sql}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

fn mariadb(server: &MariaDbServer, sql: &str) -> Output {
    Command::new(server.binaries().program("mariadb"))
        .args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"])
        .args([
            "--host=127.0.0.1",
            &format!("--port={}", server.port()),
            "--execute",
            sql,
        ])
        .output()
        .expect("the client runs")
}
