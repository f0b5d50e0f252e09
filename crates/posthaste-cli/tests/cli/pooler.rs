//! The command behind PgBouncer in transaction mode, where nothing may be left in a session of the server that others share.

use posthaste_servers::{PgBouncer, PoolMode};
use sqlx::postgres::PgConnectOptions;

use crate::support::{DRAIN, Place, TO_STDOUT};

/// A place whose outbox has a log as well, the address of a pooler in front of it, and that pooler.
fn behind_pooler() -> Option<(Place, String, String, PgBouncer)> {
    let place = Place::with_postgres()?.set("DATABASE__LAYOUT", "log").migrated();
    let direct = place.setting("DATABASE__URL").unwrap().to_owned();
    let server: PgConnectOptions = direct.parse().unwrap();
    // All share two sessions, so that what one leaves there the next one meets.
    let bouncer = PgBouncer::start(&std::env::temp_dir(), server.get_port(), PoolMode::Transaction, 2)
        .expect("PgBouncer is installed: run these tests with `cargo xtask test`");
    let pooled = bouncer.url(server.get_database().unwrap());
    Some((place.set("DATABASE__URL", &pooled), pooled, direct, bouncer))
}

#[test]
fn a_queue_beside_a_log_is_served_through_a_pooler() {
    let Some((place, _, _, _bouncer)) = behind_pooler() else {
        return;
    };
    let place = place.set("DATABASE__LAYOUT", "queue");
    let check = [&["run", "--check"], &TO_STDOUT[..]].concat();
    for n in 0..4 {
        let id = place.enqueue(&["--topic", "orders", "--payload", &n.to_string()]);
        place.run(&["status"]).success();
        place.run(&check).success();
        let drained = place.run(&DRAIN).success().stdout;
        assert!(drained.contains(&id), "{drained}");
        place.run(&["dead", "list"]).success();
    }
}

#[test]
fn commands_of_a_log_behind_a_pooler_name_the_setting_that_they_need() {
    let Some((place, pooled, direct, _bouncer)) = behind_pooler() else {
        return;
    };
    let check = [&["run", "--check"], &TO_STDOUT[..]].concat();
    let commands = [
        &["status"][..],
        &["dead", "list"],
        &["dead", "discard", "--all", "--yes"],
        &["purge", "--dry-run", "--older-than", "1h"],
        &["log", "status"],
        &["log", "shards", "2"],
        &["log", "move", "--dry-run"],
        &["log", "move"],
        &check,
    ];
    for _ in 0..2 {
        for command in commands {
            place
                .run(command)
                .fails_with(&["pool_mode = transaction", "database.direct_url"]);
        }
    }
    // A producer is served all the same, and one who knows better is believed.
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    let place = place.set("DATABASE__POOLING", "transaction");
    place
        .run(&["log", "status"])
        .fails_with(&["pool_mode = transaction", "database.direct_url"]);
    let place = place.set("DATABASE__URL", &direct).set("DATABASE__POOLING", "detect");
    assert_eq!(place.status()["pending"], 1);
    let place = place.set("DATABASE__URL", &pooled).set("DATABASE__DIRECT_URL", &direct);
    for command in commands.iter().filter(|command| !command.contains(&"shards")) {
        place.run(command).success();
    }
    assert_eq!(place.status()["pending"], 1);
}
