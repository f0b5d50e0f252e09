//! The alerts of the safety net under dead letters.

use std::fs;

use crate::receiver::{Answer, Receiver, posting_to};
use crate::support::Place;
use crate::watch::{Watched, prometheus};

const DONATIONS: &str = include_str!("../../../posthaste-sql/maps/donation.sql");

/// A row that becomes dead, and a table of dead letters that does not take it.
const DYING: &str = "
    alter table donation_dlq add constraint nothing check (original_id < 0);
    insert into donation_outbox (request_id, event_type, payload, content_hash, max_retries, created_at, updated_at)
        values ('1', 'DONATED', '{}', sha2('1|DONATED|{}', 256), 0, utc_timestamp(), utc_timestamp());";

/// A relay with a net, whose directory may be taken away.
fn donations(job: &'static str) -> Option<Watched> {
    let (prometheus, place) = (prometheus()?, Place::with_mariadb()?);
    place.sql(DONATIONS);
    fs::create_dir(place.path("spool")).unwrap();
    place.write("posthaste.toml", "[safety_net]\nfile = 'spool/dead-letters.jsonl'\n");
    let place = place.set("DATABASE__MAP", "donation");
    let receiver = Receiver::new(Answer::Fail);
    let quick = [
        "--set",
        "relay.poll_interval=100ms",
        "--set",
        "relay.max_poll_interval=200ms",
    ];
    let args = quick.map(str::to_owned).into_iter().chain(posting_to(receiver.port));
    let relay = Watched::start(prometheus, job, place, args);
    relay.is_scraped();
    Some(relay)
}

#[test]
fn a_dead_letter_that_the_safety_net_caught() {
    let Some(relay) = donations("net-used") else { return };
    relay.place.sql(DYING);
    relay.fires(&["PosthasteSafetyNetUsed"]);
    relay.place.sql("alter table donation_dlq drop constraint nothing");
    relay.place.run(&["spool", "import"]).success();
    relay.clears(&["PosthasteSafetyNetUsed"]);
}

#[test]
fn a_safety_net_that_failed_too() {
    let Some(relay) = donations("net-failed") else { return };
    fs::remove_dir_all(relay.place.path("spool")).unwrap();
    relay.place.sql(DYING);
    relay.fires(&["PosthasteSafetyNetFailed"]);
    fs::create_dir(relay.place.path("spool")).unwrap();
    relay.clears(&["PosthasteSafetyNetFailed"]);
}
