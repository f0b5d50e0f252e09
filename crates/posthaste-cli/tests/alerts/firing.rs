//! Each alert, made to fire by what it is for, and to clear by what its runbook says.

use std::path::Path;

use posthaste_servers::{PostgresServer, StopMode};

use crate::receiver::{Answer, Receiver, free_port, orders_to, posting_to};
use crate::support::{Place, TO_STDOUT, without_postgres};
use crate::watch::{Watched, prometheus, query};

/// Opens circuits for a moment only.
const BRIEF_CIRCUIT: [&str; 2] = ["--set", "relay.breaker.open_for=500ms"];

fn with(settings: &[&str], more: Vec<String>) -> Vec<String> {
    settings.iter().map(ToString::to_string).chain(more).collect()
}

fn enqueue(place: &Place, messages: usize) {
    let lines = "{\"topic\": \"orders\", \"payload\": 1}\n".repeat(messages);
    place.run_with_input(&["enqueue", "--stdin"], &lines).success();
}

const DONATIONS: &str = include_str!("../../../posthaste-sql/maps/donation.sql");

/// Fresh rows, one whose payload was changed afterwards, and one that a relay had claimed before it died.
const DONATED: &str = "
insert into donation_outbox (request_id, event_type, payload, content_hash, created_at, updated_at)
    select seq, 'DONATED', '{}', sha2(concat(seq, '|DONATED|{}'), 256), utc_timestamp(), utc_timestamp()
    from seq_1_to_1300;
update donation_outbox set payload = '{\"amount\": 1000000}' where request_id = '1';
update donation_outbox set status = 'PROCESSING', locked_by = 'gone', locked_at = utc_timestamp() - interval 1 hour
    where request_id = '2';
";

/// Proves D9.
#[test]
fn the_six_thresholds_of_a_donation_outbox_fire_and_clear() {
    let (Some(prometheus), Some(place)) = (prometheus(), Place::with_mariadb()) else {
        return;
    };
    place.sql(DONATIONS);
    place.sql(DONATED);
    let receiver = Receiver::new(Answer::None);
    let settings = [
        "--set",
        "relay.poll_interval=100ms",
        "--set",
        "relay.max_poll_interval=200ms",
        "--set",
        "relay.recover_interval=500ms",
        "--set",
        "relay.retry.backoff.base=1s",
    ];
    let place = place.set("DATABASE__MAP", "donation");
    let relay = Watched::start(
        prometheus,
        "donation",
        place,
        with(&settings, posting_to(receiver.port)),
    );
    relay.fires(&[
        "PosthasteBacklog",
        "PosthasteNothingDelivered",
        "PosthasteIntegrity",
        "PosthasteDeadLetters",
        "PosthasteStalledRecovered",
    ]);
    receiver.answer(Answer::Fail);
    relay.fires(&["PosthasteFailures"]);
    receiver.answer(Answer::Take);
    relay.clears(&[
        "PosthasteBacklog",
        "PosthasteNothingDelivered",
        "PosthasteFailures",
        "PosthasteIntegrity",
        "PosthasteDeadLetters",
        "PosthasteStalledRecovered",
    ]);
}

const SHIPMENTS: &str = include_str!("../../../posthaste-sql/maps/logistics.sql");

/// Rows that have been retried five times.
const RETRIED: &str = "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload, retry_count)
    select gen_random_uuid(), 'Shipment', gen_random_uuid(), 'ShipmentSent', '{}', 5 from generate_series(1, 3);";

/// Proves E5.
#[test]
fn failed_rows_fire_until_an_operator_replays_them() {
    let (Some(prometheus), Some(place)) = (prometheus(), Place::with_postgres()) else {
        return;
    };
    place.sql(SHIPMENTS);
    place.sql(RETRIED);
    let place = place.set("DATABASE__MAP", "logistics");
    let receiver = Receiver::new(Answer::Fail);
    let relay = Watched::start(prometheus, "logistics", place, posting_to(receiver.port));
    relay.fires(&["PosthasteDeadRows", "PosthasteDeadLetters"]);
    relay.clears(&["PosthasteDeadLetters"]);
    assert!(
        relay.alerts(&["firing"]).contains("PosthasteDeadRows"),
        "as long as the rows are there"
    );
    receiver.answer(Answer::Take);
    relay.place.run(&["dead", "replay", "--all"]).success();
    relay.clears(&["PosthasteDeadRows"]);
}

#[test]
fn a_broker_that_is_unavailable_and_messages_that_grow_old() {
    let Some(prometheus) = prometheus() else { return };
    let place = Place::with_sqlite().migrated();
    enqueue(&place, 20);
    let broker = free_port();
    let relay = Watched::start(prometheus, "outage", place, with(&BRIEF_CIRCUIT, posting_to(broker)));
    relay.fires(&["PosthasteBrokerUnavailable", "PosthasteOldestAge"]);
    let _broker = Receiver::on(broker, Answer::Take);
    relay.clears(&["PosthasteBrokerUnavailable", "PosthasteOldestAge"]);
}

#[test]
fn one_destination_that_is_unavailable() {
    let Some(prometheus) = prometheus() else { return };
    let place = Place::with_sqlite().migrated();
    let partner = free_port();
    place.write("posthaste.toml", &orders_to(partner));
    enqueue(&place, 20);
    let relay = Watched::start(prometheus, "partner", place, BRIEF_CIRCUIT);
    relay.fires(&["PosthasteDestinationUnavailable"]);
    assert!(
        !relay
            .alerts(&["firing", "pending"])
            .contains("PosthasteBrokerUnavailable")
    );
    let _partner = Receiver::on(partner, Answer::Take);
    relay.clears(&["PosthasteDestinationUnavailable"]);
}

#[test]
fn a_lease_that_another_worker_took() {
    let Some(prometheus) = prometheus() else { return };
    let place = Place::with_sqlite().migrated();
    let receiver = Receiver::new(Answer::None);
    let relay = Watched::start(prometheus, "lease", place, posting_to(receiver.port));
    relay.is_scraped();
    relay.place.enqueue(&["--topic", "orders", "--payload", "1"]);
    relay.eventually("the message is claimed", || relay.place.status()["processing"] == 1);
    relay
        .place
        .sql("update posthaste_outbox set lease_token = 'of another' where status = 'processing'");
    receiver.answer(Answer::Take);
    relay.fires(&["PosthasteLeaseLost"]);
    relay.clears(&["PosthasteLeaseLost"]);
}

#[test]
fn a_relay_that_is_gone() {
    let Some(prometheus) = prometheus() else { return };
    let mut relay = Watched::start(prometheus, "gone", Place::with_sqlite().migrated(), TO_STDOUT);
    relay.is_scraped();
    relay.stop();
    relay.fires(&["PosthasteNoRelay"]);
    relay.start_again(&[]);
    relay.clears(&["PosthasteNoRelay"]);
}

#[test]
fn a_database_that_is_unavailable() {
    let Some(prometheus) = prometheus().filter(|_| !without_postgres()) else {
        return;
    };
    let server = PostgresServer::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let place = Place::empty()
        .set("DATABASE__URL", &url)
        .set("DATABASE__ACQUIRE_TIMEOUT", "2s")
        .migrated();
    let relay = Watched::start(prometheus, "database", place, TO_STDOUT);
    relay.is_scraped();
    server.stop(StopMode::Fast).unwrap();
    relay.fires(&["PosthasteDatabaseUnavailable"]);
    server.start_again().unwrap();
    relay.clears(&["PosthasteDatabaseUnavailable"]);
}

#[test]
fn a_row_whose_outcome_the_database_refuses() {
    let Some(prometheus) = prometheus() else { return };
    let place = Place::with_sqlite().migrated();
    let relay = Watched::start(prometheus, "refused", place, TO_STDOUT);
    relay.is_scraped();
    relay.place.sql(
        "create trigger refuse before update on posthaste_outbox when new.status = 'delivered' and new.topic = 'refused'
         begin select raise(abort, 'not today'); end",
    );
    relay.place.enqueue(&["--topic", "refused", "--payload", "1"]);
    relay.fires(&["PosthasteWritesRefused"]);
    relay.place.sql("drop trigger refuse");
    relay.clears(&["PosthasteWritesRefused"]);
}

#[test]
fn a_table_that_nobody_may_look_after() {
    let Some(prometheus) = prometheus() else { return };
    let args = with(&TO_STDOUT, vec!["--set".into(), "relay.janitor_interval=1s".into()]);
    let relay = Watched::start(prometheus, "no-janitor", Place::with_sqlite().migrated(), args);
    relay.is_scraped();
    relay.place.sql("alter table posthaste_leaders rename to aside");
    relay.place.enqueue(&[
        "--topic",
        "orders",
        "--payload",
        "1",
        "--not-before",
        "2099-01-01T00:00:00Z",
    ]);
    relay.fires(&["PosthasteNoJanitor"]);
    let pending = query(prometheus, "outbox_pending_count{job=\"no-janitor\"}");
    assert!(
        format!("{pending:?}").contains("\"1\""),
        "it is counted all the same: {pending:?}"
    );
    relay.place.sql("alter table aside rename to posthaste_leaders");
    relay.clears(&["PosthasteNoJanitor"]);
}

/// Otherwise nobody would believe the others.
#[test]
fn a_relay_that_does_its_work_fires_nothing() {
    /// More than the longest that any condition has to last, twice.
    const SAMPLES: usize = 40;
    let Some(prometheus) = prometheus() else { return };
    let relay = Watched::start(prometheus, "healthy", Place::with_sqlite().migrated(), TO_STDOUT);
    let mut seen = std::collections::BTreeSet::new();
    relay.eventually("it is scraped for long enough", || {
        relay.place.enqueue(&["--topic", "orders", "--payload", "1"]);
        seen.extend(relay.alerts(&["firing"]));
        let scraped = query(
            prometheus,
            "count_over_time(outbox_processed_count{job=\"healthy\"}[5m])",
        );
        let samples = scraped
            .first()
            .and_then(|sample| sample["value"][1].as_str()?.parse().ok());
        samples.is_some_and(|samples: usize| samples >= SAMPLES)
    });
    assert_eq!(seen, std::collections::BTreeSet::new());
}

/// The switch to new shards waits for whoever was writing.
#[test]
fn a_transaction_that_keeps_new_shards_of_a_log_waiting() {
    const OPEN: &str = "begin; insert into log (topic, payload) values ('orders', '1'); select pg_sleep(60); rollback";
    let (Some(prometheus), Some(place)) = (prometheus(), Place::with_postgres()) else {
        return;
    };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    let relay = Watched::start(prometheus, "held-up", place, TO_STDOUT);
    relay.is_scraped();
    std::thread::scope(|scope| {
        scope.spawn(|| relay.place.sql(OPEN));
        relay.eventually("it writes, and new shards are refused", || {
            relay.place.run(&["log", "shards", "2"]).stderr.contains("stay open")
        });
        relay.place.run(&["log", "shards", "3", "--force"]).success();
        relay.fires(&["PosthasteLogHeldUp"]);
    });
    relay.clears(&["PosthasteLogHeldUp"]);
}

/// A claim that comes back late: until then the process lives, and delivers nothing.
#[test]
#[cfg(feature = "failpoints")]
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
