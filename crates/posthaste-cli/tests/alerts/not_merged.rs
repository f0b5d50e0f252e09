//! What rules and dashboard name and relays do not show yet.
//!
//! Whoever brings a metric removes its line below (a test says which lines are needless) and the `ignore` of its scenario. In the
//! end the scenarios belong into `firing.rs`, and this file goes.

/// Metrics of the rules and the dashboard that no relay has, each with what it is called today.
pub const NOT_MERGED: [(&str, Option<&str>); 25] = [
    ("outbox_failed_count", Some("outbox_failure_count")),
    ("outbox_destinations_unavailable", Some("outbox_destinations_away")),
    ("outbox_destination_circuit_state", None),
    ("outbox_in_flight_messages", None),
    ("outbox_in_flight_bytes", None),
    ("outbox_claim_seconds_bucket", None),
    ("outbox_publish_seconds_bucket", None),
    ("outbox_settle_seconds_bucket", None),
    ("outbox_claim_messages_sum", None),
    ("outbox_claim_messages_count", None),
    ("outbox_publish_messages_sum", None),
    ("outbox_publish_messages_count", None),
    ("outbox_settle_messages_sum", None),
    ("outbox_settle_messages_count", None),
    ("outbox_released_count", None),
    ("outbox_repeated_count", None),
    ("outbox_seconds_since_claim", None),
    ("outbox_topic_pending_count", None),
    ("outbox_topic_oldest_age_seconds", None),
    ("outbox_upkeep_owner", None),
    ("outbox_dead_letter_net_count", None),
    ("outbox_spool_messages", None),
    ("outbox_spool_bytes", None),
    ("outbox_alert_count", None),
    ("outbox_task_stalled", None),
];

/// The rules with the names that relays have today.
pub fn with_names_of_today(rules: &str) -> String {
    let renamed = NOT_MERGED.iter().filter_map(|(name, today)| Some((name, (*today)?)));
    renamed.fold(rules.to_owned(), |rules, (name, today)| rules.replace(name, today))
}

mod scenarios {
    use std::fs;

    use crate::receiver::{Answer, Receiver, posting_to};
    use crate::support::{Place, TO_STDOUT};
    use crate::watch::{Watched, prometheus};

    /// A claim that comes back late: until then the process lives, and delivers nothing.
    #[test]
    #[cfg(feature = "failpoints")]
    #[ignore = "needs outbox_task_stalled"]
    fn a_task_that_stands_still() {
        let Some(prometheus) = prometheus() else { return };
        let settings = [&TO_STDOUT[..], &["--set", "relay.store_timeout=500ms"]].concat();
        let mut relay = Watched::start(prometheus, "stalled", Place::with_sqlite().migrated(), settings);
        relay.is_scraped();
        relay.stop();
        relay.start_again(&[("FAILPOINTS", "before_claim=1*sleep(25000)")]);
        relay.fires(&["PosthasteTaskStalled"]);
        relay.clears(&["PosthasteTaskStalled"]);
    }

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
    #[ignore = "needs the safety net"]
    fn a_dead_letter_that_the_safety_net_caught() {
        let Some(relay) = donations("net-used") else { return };
        relay.place.sql(DYING);
        relay.fires(&["PosthasteSafetyNetUsed"]);
        relay.place.sql("alter table donation_dlq drop constraint nothing");
        relay.place.run(&["spool", "import"]).success();
        relay.clears(&["PosthasteSafetyNetUsed"]);
    }

    #[test]
    #[ignore = "needs the safety net"]
    fn a_safety_net_that_failed_too() {
        let Some(relay) = donations("net-failed") else { return };
        fs::remove_dir_all(relay.place.path("spool")).unwrap();
        relay.place.sql(DYING);
        relay.fires(&["PosthasteSafetyNetFailed"]);
        fs::create_dir(relay.place.path("spool")).unwrap();
        relay.clears(&["PosthasteSafetyNetFailed"]);
    }
}
