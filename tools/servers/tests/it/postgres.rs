//! A private PostgreSQL, seen from outside with PostgreSQL's own programs.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use posthaste_servers::{PostgresOptions, PostgresServer, StopMode};

#[test]
fn data_survives_an_immediate_stop() {
    let Some((_parent, server)) = start(&PostgresOptions::default()) else {
        return;
    };
    assert!(server.is_running());
    assert!(is_ready(&server));
    query(&server, "create table kept as select 42 as answer");

    server.stop(StopMode::Immediate).unwrap();
    assert!(!server.is_running());
    assert!(!is_ready(&server));
    server.stop(StopMode::Fast).expect("stopping twice is no error");

    server.start_again().unwrap();
    assert_eq!(query(&server, "select answer from kept"), "42");
}

#[test]
fn two_servers_live_side_by_side_and_dropping_removes_one() {
    let Some((parent, first)) = start(&PostgresOptions::default()) else {
        return;
    };
    let second = PostgresServer::start(parent.path()).unwrap();
    assert_ne!(first.port(), second.port());
    assert_eq!(parent.path().read_dir().unwrap().count(), 2);

    drop(first);

    assert!(is_ready(&second));
    drop(second);
    assert_eq!(parent.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_detached_server_runs_on_until_somebody_attaches() {
    let Some((_parent, server)) = start(&PostgresOptions::default()) else {
        return;
    };
    let url = server.url();
    let home = server.detach();

    let server = PostgresServer::attach(&home).unwrap();
    assert_eq!(server.url(), url);
    assert!(is_ready(&server));

    drop(server);
    assert!(!home.exists());
    assert!(PostgresServer::attach(&home).is_err());
}

#[test]
fn only_the_password_role_needs_a_password() {
    let Some((_parent, server)) = start(&PostgresOptions::default()) else {
        return;
    };
    let role = PostgresServer::PASSWORD_ROLE;
    query(&server, &format!("create role {role} login password 'right'"));
    let login = |password: &str| {
        let url = format!("postgres://{role}:{password}@127.0.0.1:{}/postgres", server.port());
        psql(&server, &url, "select 1").status.success()
    };
    assert!(login("right"));
    assert!(!login("wrong"));
}

#[test]
fn settings_are_those_of_the_options() {
    let options = PostgresOptions {
        durable: true,
        settings: vec![("work_mem".into(), "7MB".into())],
        ..PostgresOptions::default()
    };
    let Some((_parent, server)) = start(&options) else {
        return;
    };
    for (name, value) in [
        ("fsync", "on"),
        ("work_mem", "7MB"),
        ("wal_level", "logical"),
        ("max_connections", "300"),
    ] {
        assert_eq!(query(&server, &format!("show {name}")), value, "{name}");
    }
    if server.binaries().has_module("pg_stat_statements") {
        query(
            &server,
            "create extension pg_stat_statements; select count(*) from pg_stat_statements",
        );
    }
}

/// `None` where the test runner said that there is no PostgreSQL on this machine.
fn start(options: &PostgresOptions) -> Option<(tempfile::TempDir, PostgresServer)> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "postgres") {
        return None;
    }
    // As root the server runs as another user, whom a private directory would keep out.
    let parent = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .expect("a temporary directory");
    let server = PostgresServer::start_with(parent.path(), options).expect("a server");
    Some((parent, server))
}

fn is_ready(server: &PostgresServer) -> bool {
    let mut command = Command::new(server.binaries().program("pg_isready"));
    command
        .args(["-q", "-d", &server.url()])
        .status()
        .expect("pg_isready runs")
        .success()
}

fn query(server: &PostgresServer, sql: &str) -> String {
    let done = psql(server, &server.url(), sql);
    assert!(
        done.status.success(),
        "{sql}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

fn psql(server: &PostgresServer, url: &str, sql: &str) -> Output {
    Command::new(server.binaries().program("psql"))
        .args(["-XAtq", "-d", url, "-c", sql])
        .output()
        .expect("psql runs")
}
