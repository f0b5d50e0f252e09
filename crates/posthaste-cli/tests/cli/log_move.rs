//! `log move` while something is in its way.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection};

use crate::dead::with_dead;
use crate::support::{Background, Place, TO_STDOUT, eventually};

/// What a relay that was killed leaves for an hour.
const CLAIM: &str =
    "update outbox set status = 'processing', locked_by = gen_random_uuid(), lease_token = gen_random_uuid(),
    locked_until = now() + interval '1 hour'";

/// A transaction that stays open until there is a table `released`, for a minute at most.
fn stay_open(place: &Place, sql: &str) {
    place.sql(&format!(
        "begin; {sql}; do $$begin for i in 1 .. 1200 loop exit when to_regclass('released') is not null; perform pg_sleep(0.05); end loop; \
         end$$; rollback"
    ));
}

/// Outside of any transaction.
fn roll_back_prepared(place: &Place, gid: &str) {
    let url = place.setting("DATABASE__URL").unwrap();
    let done = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut conn = sqlx::PgConnection::connect(url).await?;
        let sql = format!("rollback prepared '{gid}'");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await
    });
    done.unwrap();
}

/// A queue beside a log.
fn with_message() -> Option<Place> {
    let place = Place::with_postgres()?.set("DATABASE__LAYOUT", "log").migrated();
    let place = place.set("DATABASE__LAYOUT", "queue");
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    Some(place)
}

/// A move that goes on in the background, as far as its fence.
fn begun(place: &Place) -> Background {
    let moving = place.start(&["log", "move", "--wait", "3m"]);
    eventually("the move was begun", || {
        place.run(&["log", "move", "--dry-run", "--json"]).success().json()["fenced"] == true
    });
    moving
}

/// The queue is served again, so nothing of it may go to the log.
#[test]
fn a_move_that_is_running_ends_when_it_is_taken_back() {
    let Some(place) = with_message() else { return };
    place.sql(CLAIM);
    let mut moving = begun(&place);
    let taken_back = place.run(&["log", "move", "--abort"]).success().stdout;
    assert!(taken_back.contains("the move was taken back"), "{taken_back}");
    assert_eq!(moving.exit_code(), Some(1));
    let said = place.read("log");
    assert!(
        said.contains("0 messages were moved") && said.contains("was taken back meanwhile"),
        "{said}"
    );
    place.sql("update outbox set locked_until = now() - interval '1 s'");
    let _relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    place.enqueue(&["--topic", "a", "--payload", "2"]);
    eventually("the queue is served", || place.read("out").lines().count() == 2);
}

/// What is in the log need not have come there by the move: it was tried out, and a letter was left.
#[test]
fn a_move_that_gives_up_is_offered_to_be_taken_back_only_while_nothing_is_in_the_log() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log");
    let letters = with_dead(&place, &[("orders", "k")]);
    let place = place.set("DATABASE__LAYOUT", "queue");
    // As a producer does that knows nothing of the log.
    place.sql(
        "insert into outbox (id, namespace, topic, payload) values ('0199c3a2-0000-7000-8000-000000000001', 'default', 'a', '1')",
    );
    place.sql(CLAIM);
    let refused = || {
        let gave_up = place.run(&["log", "move", "--wait", "1s"]);
        gave_up.fails_with(&[
            "1 message that a relay has claimed; 0 messages were moved",
            "relays of the queue claim nothing",
        ]);
        gave_up.stderr
    };
    for _ in ["first", "again"] {
        let gave_up = refused();
        assert!(!gave_up.contains("--abort"), "{gave_up}");
    }
    place
        .run(&["log", "move", "--abort"])
        .fails_with(&["messages wait in the log"]);

    let of_log = ["--yes", "--set", "database.layout=log"];
    place
        .run(&[&["dead", "discard", &letters[0]], &of_log[..]].concat())
        .success();
    let gave_up = refused();
    assert!(gave_up.contains("or taken back (--abort)"), "{gave_up}");
    let taken_back = place.run(&["log", "move", "--abort", "--json"]).success().json();
    assert_eq!(taken_back["aborted"], true);
}

#[test]
fn relays_that_do_not_stop_are_named() {
    for place in [Place::with_postgres(), Some(Place::with_sqlite())]
        .into_iter()
        .flatten()
    {
        let place = place.migrated();
        let _relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
        let mut relay = serde_json::Value::Null;
        eventually("the relay is on the list", || {
            relay = place.status()["relays"]
                .as_array()
                .unwrap()
                .first()
                .cloned()
                .unwrap_or_default();
            relay.is_object()
        });
        let (worker, host) = (relay["worker"].as_str().unwrap(), relay["host"].as_str().unwrap());
        let name = format!(
            "for 1 relay to stop: {worker} (stdout on {host}, process {})",
            relay["pid"]
        );
        place.run(&["log", "move", "--wait", "1s"]).fails_with(&[&name]);
    }
}

/// Each step is held up by others: taking it back also by whoever only reads.
#[test]
fn transactions_that_hold_up_a_move_are_named() {
    let Some(place) = with_message() else { return };
    let gid = format!("move_{}", place.setting("DATABASE__SCHEMA").unwrap());
    let (name, end) = (
        format!("the prepared transaction '{gid}'"),
        format!("`rollback prepared '{gid}'`"),
    );
    let prepared = &[&name[..], &end][..];
    let prepare = format!(
        "begin; insert into outbox (id, namespace, topic, payload) values (gen_random_uuid(), 'default', 'a', '2');
         prepare transaction '{gid}'"
    );
    let command = &["log", "move", "--wait", "1s"][..];

    place.sql(&prepare);
    let refused = place.run(command);
    roll_back_prepared(&place, &gid);
    refused.fails_with(&[&["the transactions that use the queue"], prepared].concat());

    place.sql("select log_fence_queue()");
    place.sql(&prepare);
    let (moved, taken_back) = (
        place.run(command),
        place.run(&["log", "move", "--abort", "--wait", "1s"]),
    );
    roll_back_prepared(&place, &gid);
    moved.fails_with(
        &[
            &["transactions of producers that are open", "1 message was moved"],
            prepared,
        ]
        .concat(),
    );
    taken_back.fails_with(
        &[
            &["the transactions that use the queue", "nothing was changed"],
            prepared,
        ]
        .concat(),
    );

    std::thread::scope(|scope| {
        let insert =
            "insert into outbox (id, namespace, topic, payload) values (gen_random_uuid(), 'default', 'a', '2')";
        scope.spawn(|| stay_open(&place, insert));
        let mut said = String::new();
        eventually("it is seen", || {
            said = place.run(command).stderr;
            said.contains("producers that are open")
        });
        place.sql("create table released ()");
        assert!(said.contains("process ") && said.contains(", active, for "), "{said}");
        assert!(said.contains("`select pg_terminate_backend("), "{said}");
    });
    place.run(command).success();
}

/// As one that was killed leaves it: its batch goes on until the server notices.
#[test]
fn a_move_waits_for_the_step_of_another_and_names_it_in_the_end() {
    let Some(place) = with_message() else { return };
    let schema = place.setting("DATABASE__SCHEMA").unwrap();
    let lock = format!("select pg_advisory_xact_lock(hashtextextended('posthaste:move:{schema}', 0))");
    std::thread::scope(|scope| {
        scope.spawn(|| stay_open(&place, &lock));
        let mut refused = place.run(&["--version"]);
        eventually("it is refused", || {
            place.sql("select log_fence_queue()");
            refused = place.run(&["log", "move", "--abort", "--wait", "0s"]);
            refused.code == Some(1)
        });
        let also_refused = place.run(&["log", "move", "--wait", "0s"]);
        let mut moving = place.start(&["log", "move", "--wait", "2m"]);
        std::thread::sleep(Duration::from_secs(1));
        let still_waits = moving.is_running();
        place.sql("create table released ()");
        let name = "another `posthaste log move` is at work on this queue: process ";
        refused.fails_with(&["waited 0s for", name, ", active, for ", "nothing was changed"]);
        also_refused.fails_with(&["waited 0s for", name, "0 messages were moved"]);
        assert!(still_waits, "{}", place.read("log"));
        assert_eq!(moving.exit_code(), Some(0), "{}", place.read("log"));
    });
    assert_eq!(place.status()["log"]["pending"], 1);
}
