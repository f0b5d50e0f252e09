//! Dead messages of a log, by each of the ids that an operator reads of them.

use serde_json::Value;

use crate::dead::{DYING, with_dead};
use crate::support::{DRAIN, Place, eventually};

/// A message of a log as a relay's log names it, by its row and as a failed one, and as its producer does.
struct Spelled {
    row: String,
    failed: String,
    event: String,
}

impl Spelled {
    fn of(place: &Place, event: &str) -> Self {
        let shown = show(place, event).expect("it is dead");
        let failed = (1..100).map(|number| format!("failed-{number}"));
        let failed = failed.into_iter().find(|failed| {
            let shown = show(place, failed);
            shown.is_some_and(|shown| shown["id"] == event)
        });
        Self {
            row: shown["sequence"].to_string(),
            failed: failed.expect("it is a failed row"),
            event: event.to_owned(),
        }
    }

    fn all(&self) -> [&str; 3] {
        [&self.row, &self.failed, &self.event]
    }
}

fn show(place: &Place, id: &str) -> Option<Value> {
    serde_json::from_str(&place.run(&["dead", "show", id]).stdout).ok()
}

fn log_with_dead<const N: usize>() -> Option<(Place, [Spelled; N])> {
    let place = Place::with_postgres()?.set("DATABASE__LAYOUT", "log");
    let events = with_dead(&place, &[("orders", "a"); N]);
    let dead = std::array::from_fn(|n| Spelled::of(&place, &events[n]));
    Some((place, dead))
}

#[test]
fn a_dead_message_of_a_log_shows_when_it_died() {
    let Some((place, [dead])) = log_with_dead::<1>() else {
        return;
    };
    place.sql("update log_failed set died_at = '2030-01-02 03:04:05Z'");
    let shown = show(&place, &dead.event).unwrap();
    assert!(
        shown["updated_at"].as_str().unwrap().starts_with("2030-01-02T03:04:05"),
        "{shown}"
    );
    assert_ne!(shown["updated_at"], shown["created_at"]);
}

#[test]
fn a_dead_message_of_a_log_is_found_by_each_of_its_ids() {
    let Some((place, dead)) = log_with_dead::<2>() else {
        return;
    };
    let [one, other] = &dead;
    for id in one.all() {
        let listed = place.run(&["dead", "list", id]).success().stdout;
        assert!(
            listed.contains(&one.event) && !listed.contains(&other.event),
            "{id}: {listed}"
        );
        assert_eq!(show(&place, id).unwrap()["id"], one.event, "{id}");
        for (verb, would) in [("replay", "would replay 1\n"), ("discard", "would discard 1\n")] {
            let ran = place.run(&["dead", verb, id, "--dry-run"]).success();
            assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (would, ""), "{id}");
        }
        let next = place.run(&["dead", "list", "--after", id]).success().stdout;
        assert!(
            !next.contains(&one.event) && next.contains(&other.event),
            "{id}: {next}"
        );
    }
    let all: Vec<_> = dead.iter().flat_map(Spelled::all).collect();
    let ran = place
        .run(&[&["dead", "replay", "--dry-run"], &all[..]].concat())
        .success();
    assert_eq!(ran.stdout, "would replay 2\n", "each once");
    place
        .run(&["dead", "list", "--after", "77"])
        .fails_with(&["row 77", "is gone"]);
    // The wrong ones still have their reasons, and mean no other.
    for unknown in ["77", "failed-4711"] {
        let ran = place.run(&["dead", "replay", unknown]);
        ran.fails_with(&[&format!("there is no message {unknown}")]);
        assert_eq!(ran.stdout, "replayed 0\n");
    }
    place
        .run(&["dead", "discard", "--topic", "mails", "--yes", &one.row])
        .fails_with(&["is dead, but the other conditions exclude it", "topic \"orders\""]);
    assert_eq!(place.status()["dead"], 2);
}

#[test]
fn a_dead_message_of_a_log_is_replayed_and_discarded_by_each_of_its_ids() {
    let Some((place, dead)) = log_with_dead::<6>() else {
        return;
    };
    let [one, two, three, four, five, six] = &dead;
    let changes = [
        ("replay", &one.row),
        ("replay", &two.failed),
        ("replay", &three.event),
        ("discard", &four.row),
        ("discard", &five.failed),
        ("discard", &six.event),
    ];
    for (verb, id) in changes {
        let args = ["dead", verb, id, "--yes"];
        let ran = place.run(&args[..if verb == "discard" { 4 } else { 3 }]).success();
        let done = if verb == "discard" {
            "discarded 1\n"
        } else {
            "replayed 1\n"
        };
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (done, ""), "{id}");
    }
    let status = place.status();
    assert_eq!((&status["dead"], &status["pending"]), (&0.into(), &3.into()));
    place
        .run(&["dead", "replay", &one.row])
        .fails_with(&[&format!("message {} is not dead: it is pending", one.row)]);
}

/// A list that went on after its row would begin behind everything that has failed, and be empty.
#[test]
fn a_page_does_not_begin_after_a_row_of_a_log_that_is_delivered() {
    let Some((place, [one, two])) = log_with_dead() else {
        return;
    };
    let list_after = |id: &str| place.run(&["dead", "list", "--after", id]);
    place.run(&["dead", "replay", &one.row]).success();
    for id in one.all() {
        let next = list_after(id).success().stdout;
        assert!(next.contains(&two.event), "it waits in its place: {id}: {next}");
    }
    place.run(&DRAIN);
    assert_eq!(place.status()["pending"], 0);
    for id in [&one.failed, &one.event] {
        list_after(id).fails_with(&["is gone", "list again from the start"]);
    }
    list_after(&one.row).fails_with(&[
        &format!("message {}, after which", one.row),
        "is not dead: it is delivered",
        "list again from the start",
    ]);
    assert!(list_after(&two.row).success().stdout.contains("no dead messages"));
}

/// There a number is the id of an event, whose place is known for as long as the log has its row.
#[test]
fn a_page_begins_after_a_message_of_a_log_on_sqlite_that_is_delivered() {
    let place = Place::with_sqlite().set("DATABASE__LAYOUT", "log").migrated();
    place.sql("insert into posthaste_log (id, topic, payload) values ('7', 'orders', '1'), ('event', 'orders', '2')");
    let dying = [&["run", "--drain"], &DYING[..]].concat();
    eventually("both are dead", || {
        place.run(&dying);
        place.status()["dead"] == 2
    });
    place.run(&["dead", "replay", "7"]).success();
    place.run(&DRAIN);
    assert_eq!(place.status()["pending"], 0);
    let next = place.run(&["dead", "list", "--after", "7"]).success().stdout;
    assert!(next.contains("event") && !next.contains("no dead messages"), "{next}");
}

/// The same of an existing log, which lists its dead rows by their own keys.
#[test]
fn a_dead_row_of_an_existing_log_is_changed_by_each_of_its_ids() {
    let Some(place) = Place::with_postgres() else { return };
    place.sql(include_str!("../../../posthaste-sql/maps/commerce.sql"));
    // The fourth failed row is of the first event.
    place.sql(
        "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         select 'event-' || n, 'orders', 'shop', 'order', 'order-' || n, '{}' from generate_series(1, 4) n;
         insert into outbox_failed
             (event_id, event_type, source, aggregate_type, aggregate_id, payload, retry_count, last_error)
         select event_id, event_type, source, aggregate_type, aggregate_id, payload, 10, 'refused' from outbox order by id desc;
         insert into outbox_cursor (last_processed_id) values (4)",
    );
    let place = place.set("DATABASE__MAP", "commerce");
    let list = place.run(&["dead", "list", "1"]).success().stdout;
    assert!(list.contains("failed-4") && !list.contains("failed-1"), "{list}");
    for (verb, id, row) in [
        ("replay", "1", "failed-4"),
        ("replay", "event-2", "failed-3"),
        ("replay", "failed-2", "failed-2"),
        ("discard", "4", "failed-1"),
    ] {
        let yes = if verb == "discard" { &["--yes"][..] } else { &[] };
        let ran = place.run(&[&["dead", verb, id, "--json"], yes].concat()).success();
        assert_eq!(
            (&ran.json()["ids"], ran.stderr.as_str()),
            (&serde_json::json!([row]), ""),
            "{id}"
        );
    }
    assert_eq!(place.status()["dead"], 0);
    place
        .run(&["dead", "list", "--after", "4"])
        .fails_with(&["is not dead: it is delivered"]);
}
