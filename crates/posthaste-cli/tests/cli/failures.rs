//! Databases that cannot be used: exit code 1 and one message with the remedy. Those that may come back are waited for.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use posthaste_servers::{PostgresServer, StopMode};

use crate::support::{Place, Ran, TO_STDOUT, eventually, on_every_database, without_postgres};

on_every_database!(missing_tables_are_named_with_the_remedy);

fn missing_tables_are_named_with_the_remedy(place: &Place) {
    // A database without tables, as a PostgreSQL schema that is not there; a missing file has a message of its own.
    place.write("outbox.db", "");
    let run = [&["run"], &TO_STDOUT[..]].concat();
    for command in [&run[..], &["status"], &["purge"]] {
        place
            .run(command)
            .fails_with(&["there are no outbox tables", "run `posthaste migrate up`"]);
    }
}

#[test]
fn a_missing_file_is_not_made_by_looking() {
    let place = Place::with_sqlite();
    place
        .run(&["status"])
        .fails_with(&["there is no file outbox.db", "`posthaste migrate up`", "database.url"]);
    assert!(!place.path("outbox.db").exists());
}

#[test]
fn a_file_that_is_no_database_is_named_once() {
    let place = Place::with_sqlite();
    place.write(
        "outbox.db",
        "these are words, many enough that they could be the head of a database\n",
    );
    let status = place.run(&["status"]);
    status.fails_with(&["error: cannot open outbox.db", "not a SQLite database"]);
    assert!(!status.stderr.contains("there is no outbox here"), "{status:?}");
}

/// What an operator can do about a slow statement is not in its text.
#[test]
fn the_text_of_a_slow_statement_is_not_in_the_log() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.migrated();
    let schema = place.setting("DATABASE__SCHEMA").unwrap().to_owned();
    place.sql(&format!(
        "create function {schema}.doze() returns trigger language plpgsql as \
         $$ begin perform pg_sleep(1.2); return new; end $$"
    ));
    place.sql(&format!(
        "create trigger doze before insert on {schema}.outbox for each row execute function {schema}.doze()"
    ));
    let enqueue = ["enqueue", "--topic", "a", "--payload", "1"];
    let log = place.run(&enqueue).success().stderr;
    assert!(!log.contains("insert into"), "{log}");
    let log = place.run(&[&enqueue[..], &["-vv"]].concat()).success().stderr;
    assert!(log.contains("slow statement"), "whoever looks closer sees it: {log}");
}

/// A server of our own, whose roles and life are ours to change.
fn server() -> Option<PostgresServer> {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    (!without_postgres()).then(|| PostgresServer::start(parent).unwrap())
}

fn psql(server: &PostgresServer, sql: &str) {
    let psql = server.binaries().program("psql");
    Ran::of(Command::new(psql).args([&server.url(), "-c", sql]), "").success();
}

fn place_of(server: &PostgresServer, account: &str) -> Place {
    let url = format!("postgres://{account}@127.0.0.1:{}/postgres", server.port());
    Place::empty()
        .set("DATABASE__URL", &url)
        .set("DATABASE__ACQUIRE_TIMEOUT", "2s")
}

#[test]
fn a_wrong_password_and_a_full_server_end_the_command_with_the_remedy() {
    let Some(server) = server() else { return };
    let role = PostgresServer::PASSWORD_ROLE;
    psql(&server, &format!("create role {role} login password 'right'"));
    psql(&server, "create role crowded login connection limit 0");

    let place = place_of(&server, &format!("{role}:wrong"));
    let run = [&["run"], &TO_STDOUT[..]].concat();
    for command in [&run[..], &["status"], &["migrate"]] {
        let ran = place.run(command);
        ran.fails_with(&[
            "password authentication failed",
            "check user and password in the database URL",
        ]);
        assert!(!ran.stderr.contains("wrong"), "{ran:?}");
    }
    let ran = place_of(&server, "crowded").run(&["status"]);
    ran.fails_with(&["too many connections", "raise max_connections of the server"]);
}

/// Neither the line of the server's source nor the driver's words about the same thing.
#[test]
fn a_refusal_of_the_server_is_said_once_and_in_its_words() {
    let Some(server) = server() else { return };
    let url = format!("postgres://postgres@127.0.0.1:{}/nowhere", server.port());
    let ran = Place::empty().set("DATABASE__URL", &url).run(&["status"]);
    ran.fails_with(&[]);
    assert_eq!(
        ran.stderr,
        "error: PostgreSQL: database \"nowhere\" does not exist; create the database, or correct its name in the database URL\n"
    );
}

#[test]
fn a_server_that_is_unavailable_is_waited_for_by_the_relay_and_reported_by_the_rest() {
    let Some(server) = server() else { return };
    let place = place_of(&server, "postgres").migrated();
    let id = place.enqueue(&["--topic", "a", "--payload", "1"]);
    server.stop(StopMode::Fast).unwrap();
    place
        .run(&["status"])
        .fails_with(&["check that PostgreSQL runs and that host and port are right"]);

    let mut relay = place.start(&[
        "run",
        "--set",
        "publisher.kind=file",
        "--set",
        "publisher.path=events.jsonl",
    ]);
    eventually("the relay says that it waits", || {
        place.read("log").contains("trying again until it works")
    });
    server.start_again().unwrap();
    eventually("the message is delivered", || place.read("events.jsonl").contains(&id));
    relay.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
}

/// After a failover the server that is there first may still be a standby.
#[test]
fn a_server_that_takes_no_writes_yet_is_waited_for_by_the_relay() {
    let Some(server) = server() else { return };
    let place = place_of(&server, "postgres").migrated();
    let id = place.enqueue(&["--topic", "a", "--payload", "1"]);
    let read_only = |on: &str| {
        psql(
            &server,
            &format!("alter system set default_transaction_read_only = {on}"),
        );
        psql(&server, "select pg_reload_conf()");
    };
    read_only("on");
    let publisher = ["--set", "publisher.kind=file", "--set", "publisher.path=events.jsonl"];
    place
        .run(&[&["run", "--check"], &publisher[..]].concat())
        .fails_with(&["read-only", "connect to the primary"]);
    let mut relay = place.start(&[&["run"], &publisher[..]].concat());
    eventually("the relay says that it waits", || {
        place.read("log").contains("claiming failed")
    });
    read_only("off");
    eventually("the message is delivered", || place.read("events.jsonl").contains(&id));
    relay.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
}

#[test]
fn a_file_that_cannot_be_written_ends_the_command_with_the_remedy() {
    const NOBODY: u32 = 65_534;
    let place = Place::with_sqlite().migrated();
    let program = place.path("posthaste");
    fs::copy(env!("CARGO_BIN_EXE_posthaste"), &program).unwrap();
    fs::set_permissions(place.path("outbox.db"), Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(place.path("."), Permissions::from_mode(0o555)).unwrap();
    let mut command = Command::new(program);
    command
        .args(["run", "--database-url", "sqlite://outbox.db"])
        .args(TO_STDOUT)
        .current_dir(place.path("."));
    if nix::unistd::geteuid().is_root() {
        // Root may write everything.
        command.uid(NOBODY).gid(NOBODY);
    }
    let ran = Ran::of(&mut command, "");
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    ran.fails_with(&["outbox.db", "writable"]);
}
