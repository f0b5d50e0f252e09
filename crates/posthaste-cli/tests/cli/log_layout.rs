//! Posthaste's own log, by the commands that serve the queue.

use crate::support::{DRAIN, Place, TO_STDOUT, eventually};

/// On each database that has such a layout.
fn logs() -> impl Iterator<Item = Place> {
    let places = [Place::with_postgres(), Some(Place::with_sqlite())];
    places
        .into_iter()
        .flatten()
        .map(|place| place.set("DATABASE__LAYOUT", "log"))
}

#[test]
fn a_log_is_made_filled_and_drained() {
    logs().for_each(|place| make_fill_and_drain(&place));
}

fn make_fill_and_drain(place: &Place) {
    let todo = place.run(&["migrate", "--dry-run"]).success().stdout;
    assert!(
        todo.contains("log_failed") && todo.contains("values (1001, 'log')"),
        "{todo}"
    );
    place.run(&["migrate"]).success();
    place.run(&["migrate", "status", "--check"]).success();
    let first = place.enqueue(&["--topic", "orders", "--key", "k", "--payload", r#"{"n":1}"#]);
    let line = |n: u32| format!("{{\"topic\":\"orders\",\"key\":\"k\",\"payload\":{{\"n\":{n}}}}}");
    let lines = (2..1_502).map(line).collect::<Vec<_>>().join("\n");
    place.run_with_input(&["enqueue", "--stdin"], &lines).success();
    assert_eq!(place.status()["pending"], 1_501);
    let drained = place.run(&DRAIN).success().stdout;
    let numbers: Vec<_> = (1..1_502).map(|n| format!("{{\"n\":{n}}}")).collect();
    let found = numbers
        .iter()
        .map(|number| drained.find(number.as_str()).expect("it was published"));
    assert!(found.is_sorted(), "in order");
    assert!(drained.contains(&first), "under the id that the producer was told");
    assert_eq!(place.status()["pending"], 0);
    place
        .run(&["run", "--check", "--set", "publisher.kind=stdout"])
        .success();
}

#[test]
fn status_fails_if_a_shard_is_read_by_nobody_or_lags() {
    logs().for_each(|place| watch_shards(&place));
    let queue = Place::with_sqlite().migrated();
    queue
        .run(&["status", "--fail-if", "unread-shards>0"])
        .fails_with(&["--fail-if 'unread-shards>0'", "has no shards"]);
}

fn watch_shards(place: &Place) {
    place.run(&["migrate"]).success();
    let fail_if = |conditions: &[&str]| {
        let options = conditions.iter().flat_map(|condition| ["--fail-if", *condition]);
        place.run(&["status"].into_iter().chain(options).collect::<Vec<_>>())
    };
    fail_if(&["shard-lag>0"]).success();
    fail_if(&["unread-shards>0"]).fails_with(&["unread-shards is 1: 0 (--fail-if 'unread-shards>0')"]);
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    place.enqueue(&["--topic", "orders", "--payload", "2"]);
    fail_if(&["shard-lag>1", "unread-shards>0"]).fails_with(&[
        "shard-lag is 2 in shard 0 (--fail-if 'shard-lag>1')",
        "unread-shards is 1",
    ]);
    let _relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    eventually("a relay reads it to its end", || {
        fail_if(&["shard-lag>0", "unread-shards>0"]).code == Some(0)
    });
}

#[test]
fn what_died_in_a_log_is_listed_replayed_and_discarded() {
    logs().for_each(|place| replay_and_discard(&place));
}

fn replay_and_discard(place: &Place) {
    place.run(&["migrate"]).success();
    let ids: Vec<_> = ["a", "b"]
        .map(|key| place.enqueue(&["--topic", "orders", "--key", key, "--payload", r#"{"n":1}"#]))
        .into();
    eventually("both are dead", || {
        let dying = [
            "run",
            "--drain",
            "--set",
            "publisher.kind=http",
            "--set",
            "publisher.url=http://127.0.0.1:1/x",
            "--set",
            "relay.retry.max_attempts=1",
            "--set",
            "relay.breaker.enabled=false",
        ];
        place.run(&dying);
        place.status()["dead"] == 2
    });
    let list = place.run(&["dead", "list"]).success().stdout;
    assert!(ids.iter().all(|id| list.contains(id)), "{list}");
    place.run(&["dead", "replay", &ids[0]]).success();
    place.run(&["dead", "discard", &ids[1], "--yes"]).success();
    assert_eq!(
        (&place.status()["dead"], &place.status()["pending"]),
        (&0.into(), &1.into())
    );
    let drained = place.run(&DRAIN).success().stdout;
    assert!(drained.contains(&ids[0]) && !drained.contains(&ids[1]), "{drained}");
}

#[test]
fn messages_that_wait_in_the_queue_are_not_forgotten_for_the_log() {
    let places = [Place::with_postgres(), Some(Place::with_sqlite())];
    places.into_iter().flatten().for_each(leave_in_queue);
}

fn leave_in_queue(place: Place) {
    let place = place.migrated();
    let enqueue = |place: &Place, payload: &str, more: &[&str]| {
        let message = ["--topic", "orders", "--key", "k", "--payload", payload];
        place.enqueue(&[&message, more].concat())
    };
    // What waits for its time stays between the two others.
    enqueue(&place, r#"{"n":1}"#, &[]);
    enqueue(&place, r#"{"n":2}"#, &["--not-before", "3s"]);
    enqueue(&place, r#"{"n":3}"#, &[]);
    let place = place.set("DATABASE__LAYOUT", "log");
    place.run(&["migrate"]).success();

    let remedy = &["3 messages wait in the queue", "posthaste log move"][..];
    place
        .run(&[&["run", "--check"], &TO_STDOUT[..]].concat())
        .fails_with(remedy);
    place.run(&[&["run"], &TO_STDOUT[..]].concat()).fails_with(remedy);
    place.run(&DRAIN).fails_with(remedy);
    let text = place.run(&["status"]).success().stdout;
    assert!(
        text.contains("pending     3") && text.contains("posthaste log move"),
        "{text}"
    );
    place
        .run(&["status", "--fail-if", "pending>2"])
        .fails_with(&["pending is 3"]);
    assert_eq!(place.status()["queue"]["pending"], 3);

    let planned = place.run(&["log", "move", "--dry-run", "--json"]).success().json();
    assert_eq!(planned["would_move"], 3, "{planned}");
    place.run(&["log", "move"]).success();
    let moved = place.status();
    assert_eq!(
        (&moved["pending"], &moved["queue"]),
        (&3.into(), &serde_json::Value::Null)
    );
    let mut delivered = String::new();
    eventually("all are delivered", || {
        delivered += &place.run(&DRAIN).stdout;
        delivered.contains(r#"{"n":3}"#)
    });
    let found = [1, 2, 3].map(|n| delivered.find(&format!("{{\"n\":{n}}}")));
    assert!(found[0].is_some() && found.is_sorted(), "in order: {delivered}");
}

#[test]
fn what_the_log_does_not_take_is_named_before_anything_is_moved() {
    let places = [
        Place::with_postgres().map(|place| {
            let row = "insert into outbox (id, namespace, topic, ordering_key, payload)
                values ('0199c3a2-0000-7000-8000-000000000001', 'default', 'orders', repeat('k', 3000), '7')";
            let named = "0199c3a2-0000-7000-8000-000000000001 (ordering_key has 3000 bytes and may have 2048)";
            let shorten = "update outbox set ordering_key = md5(ordering_key) where octet_length(ordering_key) > 2048";
            (place, row, named, shorten)
        }),
        Some({
            let row = "insert into posthaste_outbox (id, topic, payload)
                values (x'0199c3a2000070008000000000000001', 'orders', '7')";
            let named = "seq 2 (its id X'0199C3A2000070008000000000000001' is blob, not text)";
            let rename = "update posthaste_outbox set id = lower(hex(id)) where typeof(id) = 'blob'";
            (Place::with_sqlite(), row, named, rename)
        }),
    ];
    for (place, row, named, remedy) in places.into_iter().flatten() {
        let is_sqlite = place.setting("DATABASE__SCHEMA").is_none();
        let place = place.migrated();
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
        place.sql(row);
        let place = place.set("DATABASE__LAYOUT", "log");
        place.run(&["migrate"]).success();
        let dry = place.run(&["log", "move", "--dry-run"]).success().stdout;
        assert!(dry.contains("2 pending") && dry.contains(named), "{dry}");
        let dry = place.run(&["log", "move", "--dry-run", "--json"]).success().json();
        assert_eq!(dry["unfit"], 1, "{dry}");
        place.run(&["log", "move"]).fails_with(&[named, "docs/log-layout.md"]);
        let queue = place.set("DATABASE__LAYOUT", "queue");
        queue.run(&[&["run", "--check"], &TO_STDOUT[..]].concat()).success();
        queue.sql(remedy);
        let place = queue.set("DATABASE__LAYOUT", "log");
        let moved = place.run(&["log", "move", "--json"]).success().json();
        assert_eq!(moved["moved"], 2, "{moved}");
        place.run(&DRAIN).success();
        let abort = place.run(&["log", "move", "--abort"]);
        let refused = if is_sqlite {
            "nothing to take back"
        } else {
            "there is no way back"
        };
        abort.fails_with(&[refused]);
    }
}

#[test]
fn a_move_that_was_begun_is_gone_on_with_or_taken_back() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.migrated();
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    let place = place.set("DATABASE__LAYOUT", "log");
    place.run(&["migrate"]).success();
    place.sql("select log_fence_queue()");
    let place = place.set("DATABASE__LAYOUT", "queue");
    let both = &[
        "was begun",
        "`posthaste log move` again",
        "`posthaste log move --abort`",
    ][..];
    place.run(&DRAIN).fails_with(both);
    let text = place.run(&["status"]).success().stdout;
    assert!(both.iter().all(|words| text.contains(words)), "{text}");
    let taken_back = place.run(&["log", "move", "--abort"]).success().stdout;
    assert!(taken_back.contains("taken back"), "{taken_back}");
    let again = place.run(&["log", "move", "--abort", "--json"]).success().json();
    assert_eq!(again["aborted"], false);
    place.run(&DRAIN).success();
    assert_eq!(place.status()["pending"], 0);
}

/// A relay that runs says it when a producer was not told of the log, and its figures show it.
#[test]
fn a_producer_that_still_writes_to_the_queue_of_a_log_is_noticed() {
    let place = Place::with_sqlite().set("DATABASE__LAYOUT", "log").migrated();
    let run = ["run", "--set", "relay.janitor_interval=100ms"];
    let _relay = place.start(&[&run, &TO_STDOUT[..]].concat());
    eventually("it serves", || !place.status()["relays"].as_array().unwrap().is_empty());
    let (topic, layout) = (["--topic", "a", "--payload", "1"], ["--set", "database.layout=queue"]);
    place
        .run(&[&["enqueue"], &topic[..], &layout].concat())
        .fails_with(&["kept in the log", "database.layout = \"log\""]);
    place.sql(
        "insert into posthaste_outbox (id, topic, payload) values ('0199c3a2-0000-7000-8000-000000000001', 'a', '1')",
    );
    eventually("it says so", || {
        let log = place.read("log");
        log.contains("ERROR") && log.contains("1 message waits in the queue") && log.contains("posthaste log move")
    });
    assert_eq!(place.status()["pending"], 1);
}

/// The same the other way round: while the log was empty, a relay of the queue could start.
#[test]
fn a_producer_that_writes_to_a_log_which_nobody_reads_is_noticed_by_the_relay_of_the_queue() {
    let places = [Place::with_postgres(), Some(Place::with_sqlite())];
    for place in places.into_iter().flatten() {
        let place = place.set("DATABASE__LAYOUT", "log").migrated();
        let queue = [
            "--set",
            "database.layout=queue",
            "--set",
            "relay.janitor_interval=100ms",
        ];
        let _relay = place.start(&[&["run"], &queue[..], &TO_STDOUT[..]].concat());
        eventually("it serves", || !place.status()["relays"].as_array().unwrap().is_empty());
        place.enqueue(&["--topic", "a", "--payload", "1"]);
        eventually("it says so", || {
            let log = place.read("log");
            log.contains("ERROR")
                && log.contains("1 message waits in the log beside this queue")
                && log.contains("layout")
        });
        place.run(&DRAIN).success();
        assert_eq!(place.status()["pending"], 0);
    }
}

/// The mirror: a relay of the queue where the messages are in the log.
#[test]
fn a_relay_of_the_queue_does_not_serve_an_outbox_whose_messages_are_in_the_log() {
    let places = [Place::with_postgres(), Some(Place::with_sqlite())];
    places.into_iter().flatten().for_each(forget_the_layout);
}

fn forget_the_layout(place: Place) {
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    let place = place.set("DATABASE__LAYOUT", "queue");
    let remedy = &["1 message waits in the log", "database.layout = \"log\""][..];
    place
        .run(&[&["run", "--check"], &TO_STDOUT[..]].concat())
        .fails_with(remedy);
    place.run(&[&["run"], &TO_STDOUT[..]].concat()).fails_with(remedy);
    place.run(&DRAIN).fails_with(remedy);
    let text = place.run(&["status"]).success().stdout;
    assert!(text.contains("1 message waits in the log"), "{text}");
    // Another namespace of the queue is none of its business.
    place
        .run(&[&DRAIN[..], &["--set", "relay.scope.namespace=other"]].concat())
        .success();
    let place = place.set("DATABASE__LAYOUT", "log");
    place.run(&DRAIN).success();
    let place = place.set("DATABASE__LAYOUT", "queue");
    place.run(&DRAIN).success();
    if place.setting("DATABASE__SCHEMA").is_some() {
        place.run(&["log", "move"]).success();
        let moved = &["was moved to the log", "database.layout = \"log\""][..];
        place.run(&DRAIN).fails_with(moved);
        place
            .run(&[&["run", "--check"], &TO_STDOUT[..]].concat())
            .fails_with(moved);
    }
}

/// Nobody would deliver it.
#[test]
fn nothing_is_enqueued_into_the_queue_beside_a_log_that_is_used() {
    for place in [Place::with_postgres(), Some(Place::with_sqlite())]
        .into_iter()
        .flatten()
    {
        let place = place.set("DATABASE__LAYOUT", "log").migrated();
        let enqueue = ["enqueue", "--topic", "a", "--payload", "1"];
        let queue = ["--set", "database.layout=queue"];
        let to_queue = || place.run(&[&enqueue[..], &queue].concat());
        let refused = &["this outbox is kept in the log", "database.layout = \"log\""][..];
        place.enqueue(&enqueue[1..]);
        to_queue().fails_with(refused);
        place.run(&DRAIN).success();
        to_queue().fails_with(refused);
        let line = r#"{"topic": "a", "payload": 1}"#;
        let lines = |more: &[&str]| place.run_with_input(&[&["enqueue", "--stdin"], &queue[..], more].concat(), line);
        lines(&[]).fails_with(&[refused, &["nothing was written"]].concat());
        // Other namespaces stay in the queue.
        lines(&["--set", "outbox.namespace=other"]).success();
        // A relay of the queue says that the log is not used any more.
        let relay = place.start(&[&["run"], &queue[..], &TO_STDOUT].concat());
        eventually("it is served", || to_queue().code == Some(0));
        drop(relay);
    }
}

#[test]
fn a_log_has_no_namespaces_and_says_so() {
    logs().for_each(|place| {
        let place = place.migrated();
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
        let reason = "a log has no namespaces";
        for setting in ["relay.scope.namespace=other", "outbox.namespace=other"] {
            let (name, _) = setting.split_once('=').unwrap();
            place
                .run(&[&DRAIN[..], &["--set", setting]].concat())
                .fails_with(&[name, reason]);
        }
        let named = ["--namespace", "other"];
        for command in [
            &["status"][..],
            &["dead", "list"],
            &["dead", "discard", "--all", "--yes"],
            &["purge", "--dry-run"],
            &["enqueue", "--topic", "a", "--payload", "1"],
        ] {
            place.run(&[command, &named[..]].concat()).fails_with(&[reason]);
        }
        place.run(&["status", "--namespace", "default"]).success();
        assert_eq!(place.status()["pending"], 1);
    });
}

#[test]
fn a_log_is_not_for_mysql_and_for_tables_of_our_own() {
    let refused = |url: &str, reason: &str| {
        let place = Place::empty();
        place.write(
            "posthaste.toml",
            &format!("[database]\nurl = '{url}'\nlayout = 'log'\n"),
        );
        place.run(&["status"]).fails_with(&["database.layout", reason]);
    };
    refused(
        "mysql://root@127.0.0.1/x",
        "cannot tell a gap from a transaction that is still open",
    );
    let place = Place::empty();
    place.write(
        "posthaste.toml",
        "[database]\nurl = 'postgres://127.0.0.1:1/x'\nlayout = 'log'\nmap = 'commerce'\n",
    );
    place
        .run(&["status"])
        .fails_with(&["database.layout", "a table map says how its rows live"]);
    place.write("posthaste.toml", "[database]\nlayout = 'heap'\n");
    place.run(&["status"]).fails_with(&["database.layout", "queue"]);
}
