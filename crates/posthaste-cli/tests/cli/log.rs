//! `log`

use std::collections::BTreeMap;

use nix::sys::signal::Signal;

use crate::support::{DRAIN, Place, TO_STDOUT, eventually};

#[test]
fn a_queue_is_moved_to_the_log_with_one_command_when_its_relays_have_stopped() {
    let Some(place) = Place::with_postgres() else { return };
    place.run(&["migrate"]).success();
    for payload in ["1", "2", "3"] {
        place.enqueue(&["--topic", "a", "--payload", payload, "--key", "k", "--not-before", "1h"]);
    }
    let planned = place.run(&["log", "move", "--dry-run"]).success().stdout;
    assert!(
        planned.contains("would move 3 messages: 0 pending, 3 waiting, 0 dead, 0 processing"),
        "{planned}"
    );

    let mut relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    eventually("the relay is on the list", || {
        !place.status()["relays"].as_array().unwrap().is_empty()
    });
    place
        .run(&["log", "move", "--wait", "1s"])
        .fails_with(&["waited 1s for 1 relay to stop"]);
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));

    let moved = place.run(&["log", "move", "--json"]).success().json();
    assert_eq!(moved["moved"], 3);
    // Producers that were not told go on, and what they write is in the log.
    place.enqueue(&["--topic", "a", "--payload", "4", "--key", "k"]);
    let status = place.status();
    assert_eq!((&status["pending"], &status["log"]["pending"]), (&4.into(), &4.into()));
    let again = place.run(&["log", "move", "--json"]).success().json();
    assert_eq!(again["moved"], 0, "and once more changes nothing");
}

/// From its first step on relays of the queue claim nothing, which has to be known if it goes no further.
#[test]
fn a_move_that_gives_up_says_that_the_queue_stands_still() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.migrated();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    place.sql(
        "update outbox set status = 'processing', locked_by = gen_random_uuid(), lease_token = gen_random_uuid(),
         locked_until = now() + interval '1 hour'",
    );
    place.run(&["log", "move", "--wait", "1s"]).fails_with(&[
        "1 message that a relay has claimed",
        "relays of the queue claim nothing",
    ]);
    let planned = place.run(&["log", "move", "--dry-run"]).success().stdout;
    assert!(planned.contains("a move was begun"), "{planned}");
    place.sql("update outbox set locked_until = now() - interval '1 s'");
    let moved = place.run(&["log", "move", "--json"]).success().json();
    assert_eq!(moved["moved"], 1);
}

#[test]
fn how_far_a_log_is_read_is_shown() {
    let Some(place) = Place::with_postgres() else { return };
    place.run(&["migrate"]).success();
    place.run(&["log", "move"]).success();
    assert!(place.run(&["log", "status", "--json"]).success().json()["shards"].is_array());
    let text = place.run(&["log", "status"]).success().stdout;
    assert!(text.contains("shard") && text.contains("leased until"), "{text}");
}

/// On SQLite there is one reader, and it is shown whether there is.
#[test]
fn who_reads_a_log_on_sqlite_is_shown() {
    let place = Place::with_sqlite().set("DATABASE__LAYOUT", "log").migrated();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    place.enqueue(&["--topic", "a", "--payload", "2"]);
    let shard = |place: &Place| {
        let mut shards = place.run(&["log", "status", "--json"]).success().json();
        shards["shards"][0].take()
    };
    let unread = shard(&place);
    assert_eq!(
        (&unread["lag"], &unread["owner"]),
        (&2.into(), &serde_json::Value::Null)
    );
    let text = place.run(&["log", "status"]).success().stdout;
    assert!(text.contains("nobody"), "{text}");

    let mut relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    eventually("all is read", || shard(&place)["lag"] == 0);
    let read = shard(&place);
    assert_eq!((&read["epoch"], &read["position"]), (&1.into(), &2.into()));
    assert!(read["leased_until"].is_string(), "{read}");
    eventually("its owner is one of the relays", || {
        let status = place.status();
        status["shards"][0]["owner"] == status["relays"][0]["worker"]
    });
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
    assert_eq!(shard(&place)["owner"], serde_json::Value::Null, "nobody reads");

    place
        .run(&["log", "shards", "2"])
        .fails_with(&["a log on SQLite has one shard"]);
}

/// The number cannot be lowered again, so one that would take what applications need is not taken without a word.
#[test]
fn more_shards_than_there_are_connections_are_refused() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log");
    place.run(&["migrate"]).success();
    place.run(&["log", "shards", "1000"]).fails_with(&[
        "1000 new shards, and 1 that are there and have none, take up to 1002 connections",
        "max_connections",
        "--force",
    ]);
    let shards = || {
        place.run(&["log", "status", "--json"]).success().json()["shards"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(shards(), 1, "nothing was changed");
    place.run(&["log", "shards", "500", "--force"]).success();
    assert_eq!(shards(), 501);
    place
        .run(&["log", "shards", "501"])
        .fails_with(&["501 new shards, and 501 that are there and have none, take up to 1003 connections"]);
    place.run(&["log", "shards", "500"]).success();
    assert_eq!(shards(), 501, "as many make no new ones");
}

/// New messages wait for every transaction that was writing, so one that stays open is named before the switch, and after it.
#[test]
fn a_transaction_that_would_keep_new_shards_waiting_is_named() {
    const OPEN: &str = "begin; insert into log (topic, payload) values ('a', '1'); select pg_sleep(20); rollback";
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log");
    place.run(&["migrate"]).success();
    std::thread::scope(|scope| {
        scope.spawn(|| place.sql(OPEN));
        let mut refused = String::new();
        eventually("it is seen to stay open", || {
            refused = place.run(&["log", "shards", "1"]).stderr;
            refused.contains("stay open")
        });
        assert!(refused.contains("process ") && refused.contains("--force"), "{refused}");
        let raised = place.run(&["log", "shards", "2", "--force"]).success().stdout;
        assert!(raised.contains("the newest shards wait: process "), "{raised}");
        let status = place.run(&["log", "status"]).success().stdout;
        assert!(status.contains("pg_terminate_backend("), "{status}");
    });
    let status = place.run(&["log", "status", "--json"]).success().json();
    assert_eq!(status["hold_ups"], serde_json::json!([]), "it has ended");
}

/// Two relays divide the shards of a log between them, and one that stops leaves its own to the other.
///
/// Proves B14.
#[test]
fn the_number_of_shards_is_raised_and_relays_share_them() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log");
    place.run(&["migrate"]).success();
    let raised = place.run(&["log", "shards", "4", "--json"]).success().json();
    assert_eq!((&raised["shards"], &raised["generation"]), (&4.into(), &2.into()));
    assert_eq!((&raised["all_shards"], &raised["max_readers"]), (&5.into(), &16.into()));
    place.run(&["log", "shards", "2"]).fails_with(&["can only be raised"]);
    let owners = || {
        let status = place.run(&["log", "status", "--json"]).success().json();
        let shards = status["shards"].as_array().unwrap().iter();
        let owned = shards.filter(|shard| shard["generation"] == 2);
        let mut count = BTreeMap::new();
        for shard in owned {
            *count.entry(shard["owner"].as_str().map(ToOwned::to_owned)).or_insert(0) += 1;
        }
        count
    };
    let run = [&["run"], &TO_STDOUT[..]].concat();
    let _first = place.start(&run);
    eventually("one reads them all", || {
        owners().values().eq(&[4]) && !owners().contains_key(&None)
    });
    let mut second = place.start(&run);
    // Half of them are nobody's for a moment, when the first one has handed them over.
    eventually("each reads half of them", || {
        let owners = owners();
        owners.values().eq(&[2, 2]) && !owners.contains_key(&None)
    });
    let status = place.status();
    let relays = status["relays"].as_array().unwrap();
    for owner in owners().into_keys() {
        assert!(
            relays.iter().any(|relay| relay["worker"].as_str() == owner.as_deref()),
            "{owner:?} {relays:?}"
        );
    }
    second.signal(Signal::SIGTERM);
    assert_eq!(second.exit_code(), Some(0));
    eventually("the other has them all again", || {
        owners().values().eq(&[4]) && !owners().contains_key(&None)
    });
    let text = place.run(&["log", "status"]).success().stdout;
    assert!(text.contains("shard") && text.contains("leased until"), "{text}");
}

#[test]
fn what_has_no_queue_beside_a_log_is_refused() {
    let place = Place::with_sqlite();
    place.run(&["log", "move"]).fails_with(&["there is no file"]);
    let Some(place) = Place::with_mariadb() else { return };
    for command in [&["log", "move"][..], &["log", "status"]] {
        place.run(command).fails_with(&["PostgreSQL and SQLite only"]);
    }
}

/// What is written then counts as read, and looks delivered.
#[test]
fn a_sequence_that_was_set_back_is_shown_before_a_relay_says_it() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    let unread = place.run(&["log", "status"]).success().stdout;
    assert!(unread.contains("start a relay with `posthaste run`"), "{unread}");
    for payload in ["1", "2", "3"] {
        place.enqueue(&["--topic", "a", "--payload", payload]);
    }
    place.run(&DRAIN).success();
    for command in [&["log", "status", "--json"][..], &["status", "--json"]] {
        let found = place.run(command).success().json();
        assert!(found["set_back"].as_array().is_none_or(Vec::is_empty), "{found}");
    }
    place.sql("truncate log restart identity");
    place.enqueue(&["--topic", "a", "--payload", "4"]);
    let problem = [
        "shard 0 of the log was read up to number 3",
        "stands at 1",
        "select setval(",
    ];
    for command in [&["log", "status"][..], &["status"]] {
        let text = place.run(command).success().stdout;
        assert!(problem.iter().all(|part| text.contains(part)), "{text}");
        let json = place.run(&[command, &["--json"]].concat()).success().json();
        assert!(json["set_back"][0].as_str().unwrap().contains(problem[0]), "{json}");
    }
    place
        .run(&[&["run", "--check"], &TO_STDOUT[..]].concat())
        .fails_with(&problem);
}

/// It delivers, and nothing is ever removed.
#[test]
fn a_check_warns_of_a_role_that_may_not_own_segments() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    let check = [&["run", "--check"], &TO_STDOUT[..]].concat();
    let owner = place.run(&check).success().stdout;
    assert!(!owner.contains("warning"), "{owner}");
    let url = place.setting("DATABASE__URL").unwrap();
    let schema = place.setting("DATABASE__SCHEMA").unwrap();
    let role = format!("relay_{schema}");
    place.sql(&format!(
        "create role {role}; grant usage on schema {schema} to {role};
         grant select, insert, update, delete on all tables in schema {schema} to {role};
         grant usage, select on all sequences in schema {schema} to {role}"
    ));
    let setting = format!("database.url={url}?options=-c%20role%3D{role}");
    let warned = place.run(&[&check[..], &["--set", &setting]].concat()).success().stdout;
    place.sql(&format!("drop owned by {role}; drop role {role}"));
    assert!(
        warned.contains("warning    ") && warned.contains("relay.retention"),
        "{warned}"
    );
}
