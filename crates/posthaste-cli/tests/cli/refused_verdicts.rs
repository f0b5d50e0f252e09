//! Tables that refuse what a relay writes: said before anything is published, by every command that could, and of a relay that
//! runs by `status`.

use uuid::Uuid;

use crate::support::{Place, TO_STDOUT, eventually};

const DDL: &str = "create table outbox (
    id uuid primary key, aggregate_type text not null, aggregate_id uuid not null, event_type text not null,
    payload text not null, status varchar(50) not null, created_at timestamp not null, sent_at timestamp,
    error_message text);
insert into outbox values (gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated', '{}', 'NEW', now());";

/// A status poller's table, its map, and one event that waits.
fn order_service() -> Option<(Place, String)> {
    let place = Place::with_postgres()?;
    let schema = place.setting("DATABASE__SCHEMA").unwrap().to_owned();
    place.sql(DDL);
    let map = format!(
        r#"name = "orders"
order = ["created_at", "id"]
topic = {{ template = "{{aggregate_type:lower}}-events" }}
[tables]
outbox = {{ schema = "{schema}", name = "outbox" }}
[columns]
id = "id"
aggregate_type = "aggregate_type"
aggregate_id = {{ column = "aggregate_id", kind = "uuid" }}
ordering_key = {{ column = "aggregate_id", kind = "uuid" }}
event_type = "event_type"
payload = {{ column = "payload", kind = "text" }}
status = {{ column = "status", max = 50 }}
created_at = {{ column = "created_at", kind = "timestamp" }}
delivered_at = {{ column = "sent_at", kind = "timestamp" }}
last_error = "error_message"
[states]
pending = "NEW"
delivered = "SENT"
dead = "FAILED"
"#
    );
    place.write("outbox.toml", &map);
    let place = place
        .set("DATABASE__MAP", "./outbox.toml")
        .set("PUBLISHER__KIND", "file")
        .set("PUBLISHER__PATH", "./events.jsonl");
    Some((place, schema))
}

/// Nothing is published, and each command says why with the remedy.
fn is_refused(place: &Place, parts: &[&str]) {
    let check = place.run(&["maps", "check"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    for part in parts {
        assert!(check.stdout.contains(part), "`{part}`: {check:?}");
    }
    for args in [&["run", "--check"][..], &["run", "--drain"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        for part in parts {
            assert!(ran.stderr.contains(part), "`{part}`: {ran:?}");
        }
    }
    let published = std::fs::read_to_string(place.path("events.jsonl")).unwrap_or_default();
    assert_eq!(published, "");
}

#[test]
fn a_label_that_a_constraint_refuses() {
    let Some((place, _)) = order_service() else { return };
    place.run(&["maps", "check"]).success();
    place.sql("alter table outbox add check (status not in ('SENT', 'FAILED'))");
    is_refused(
        &place,
        &["outbox_status_check", "`delivered`", "nothing is published before"],
    );
    place.sql("alter table outbox drop constraint outbox_status_check");
    place.run(&["run", "--drain"]).success();
    let published = std::fs::read_to_string(place.path("events.jsonl")).unwrap();
    assert_eq!(published.lines().count(), 1);
}

#[test]
fn a_column_that_the_user_may_not_write() {
    let Some((place, schema)) = order_service() else { return };
    let role = format!("relay_{}", Uuid::new_v4().simple());
    place.sql(&format!(
        "create role {role}; grant usage on schema {schema} to {role};
         grant select, update (status, sent_at) on outbox to {role}"
    ));
    let url = place.setting("DATABASE__URL").unwrap().to_owned();
    let place = place.set("DATABASE__URL", &format!("{url}?options=-c%20role%3D{role}"));
    is_refused(&place, &["permission denied", "grant the relay's user"]);
    let owner = place.set("DATABASE__URL", &url);
    owner.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn what_is_refused_to_a_relay_that_runs_is_shown_by_status() {
    let place = Place::with_sqlite().migrated();
    let _relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    eventually("the relay is on the list", || {
        !place.status()["relays"].as_array().unwrap().is_empty()
    });
    place.sql(
        "create trigger refuse before update on posthaste_outbox when new.status = 'delivered' and new.topic = 'refused'
         begin select raise(abort, 'not today'); end",
    );
    place.enqueue(&["--topic", "refused", "--payload", "1"]);
    let mut said = String::new();
    eventually("the relay tells the database", || {
        said = place.run(&["status"]).success().stdout;
        said.contains("but the database refuses to write what became of messages (1)")
    });
    assert!(said.contains("circuit closed since"), "{said}");
    let relays = place.status()["relays"].take();
    let reason = relays[0]["circuit_reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("the database refuses to write"), "{relays}");
}
