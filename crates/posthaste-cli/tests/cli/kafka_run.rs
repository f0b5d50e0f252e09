//! `run` with Kafka: delivery, and what is said when something is wrong. The relay keeps running and goes on by itself.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use nix::sys::signal::Signal;
use posthaste_servers::{KafkaCluster, KafkaOptions};
use rdkafka::admin::{AdminClient, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use uuid::Uuid;

use crate::patient_admin;
use crate::support::{Place, eventually, on_every_database};

const TIMEOUT: Duration = Duration::from_mins(1);

fn without_kafka() -> bool {
    std::env::var("POSTHASTE_TEST_WITHOUT").is_ok_and(|list| list.split(',').any(|server| server == "kafka"))
}

/// The brokers that tests share.
fn shared() -> Option<String> {
    let brokers = || {
        std::env::var("POSTHASTE_TEST_KAFKA")
            .expect("POSTHASTE_TEST_KAFKA names no brokers: run these tests with `cargo xtask test`")
    };
    (!without_kafka()).then(brokers)
}

/// A broker of our own, whose life and listeners are ours to choose.
fn own(options: KafkaOptions) -> Option<KafkaCluster> {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let options = KafkaOptions { brokers: 1, ..options };
    (!without_kafka()).then(|| KafkaCluster::start_with(parent, &options).unwrap())
}

fn with_kafka(place: Place, brokers: &str) -> Place {
    place
        .set("PUBLISHER__KIND", "kafka")
        .set("KAFKA__BROKERS", brokers)
        .set("RELAY__BREAKER__OPEN_FOR", "1s")
}

fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

fn new_name() -> String {
    format!("cli-{}", Uuid::new_v4().simple())
}

fn make(brokers: &str, topic: &str, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = client(brokers).create().unwrap();
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(-1));
    let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
    block_on(patient_admin::create_topic(&admin, &new));
}

/// Waits for as many records; each as its id, key and payload.
fn records(brokers: &str, topic: &str, count: usize) -> Vec<(String, Option<String>, String)> {
    let consumer: BaseConsumer = client(brokers).set("group.id", "none").create().unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&assignment).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        assert!(Instant::now() < deadline, "only {found:?}");
        let Some(Ok(record)) = consumer.poll(Duration::from_millis(200)) else {
            continue;
        };
        let id = record
            .headers()
            .unwrap()
            .iter()
            .find(|header| header.key == "ce_id")
            .unwrap();
        found.push((
            text(id.value.unwrap()),
            record.key().map(text),
            text(record.payload().unwrap()),
        ));
    }
    found
}

/// Nothing waits and nothing is on its way.
fn all_settled(place: &Place) -> bool {
    let status = place.status();
    status["pending"] == 0 && status["processing"] == 0
}

on_every_database!(messages_go_to_kafka_and_count_as_delivered);

fn messages_go_to_kafka_and_count_as_delivered(place: &Place) {
    let Some(brokers) = shared() else { return };
    let topic = new_name();
    make(&brokers, &topic, &[]);
    place.write(
        "posthaste.toml",
        &format!(
            "[publisher]\nkind = 'kafka'\nroutes = [{{ topic = 'order-*', to = '{topic}' }}]\n[kafka]\nbrokers = '{brokers}'\n\
             [kafka.properties]\nlinger.ms = 1\n'retry.backoff.ms' = '50'\n"
        ),
    );
    place.run(&["migrate"]).success();
    let found = place.run(&["run", "--check"]).success().stdout;
    assert!(found.contains("publisher  kafka, 3 brokers: 127.0.0.1:"), "{found}");
    let ids: Vec<String> = (0..20)
        .map(|n| place.enqueue(&["--topic", "order-events", "--key", "42", "--payload", &n.to_string()]))
        .collect();
    place.run(&["run", "--drain"]).success();
    let delivered = records(&brokers, &topic, 20);
    for (n, (id, record)) in ids.iter().zip(&delivered).enumerate() {
        assert_eq!(*record, (id.clone(), Some("42".to_owned()), n.to_string()));
    }
    assert!(all_settled(place), "{}", place.status());
}

#[test]
fn a_broker_that_is_unavailable_at_the_start_is_waited_for() {
    let Some(cluster) = own(KafkaOptions::default()) else {
        return;
    };
    let (brokers, topic) = (cluster.bootstrap(), new_name());
    make(&brokers, &topic, &[]);
    cluster.kill_all().unwrap();
    let place = with_kafka(Place::with_sqlite(), &brokers).migrated();
    place
        .run(&["run", "--check"])
        .fails_with(&["Connection refused", "start the brokers or correct kafka.brokers"]);

    let mut relay = place.start(&["run"]);
    let id = place.enqueue(&["--topic", &topic, "--payload", "1"]);
    eventually("it is said", || {
        place.read("log").contains("messages wait until it works")
    });
    let log = place.read("log");
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!(
        warnings[0].contains("kafka.brokers") && warnings[0].contains("refused"),
        "{log}"
    );
    assert_eq!(log.matches("messages wait until it works").count(), 1, "{log}");

    cluster.start_all_again().unwrap();
    eventually("the message is delivered", || all_settled(&place));
    assert_eq!(records(&brokers, &topic, 1)[0].0, id);
    eventually("it is said that it works", || {
        place.read("log").contains("found kafka, 1 broker")
    });
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
}

#[test]
fn a_port_that_is_not_kafkas_is_named() {
    // Takes connections and ends them, as any server does that hears a foreign language.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    with_kafka(Place::with_sqlite(), &brokers)
        .migrated()
        .run(&["run", "--check"])
        .fails_with(&[&brokers, "correct kafka.brokers", "security.protocol"]);
}

#[test]
fn a_topic_that_is_not_there_is_named_and_used_once_it_is() {
    let Some(brokers) = shared() else { return };
    let topic = new_name();
    let place = with_kafka(Place::with_sqlite(), &brokers).migrated();
    let id = place.enqueue(&["--topic", &topic, "--payload", "1"]);
    let mut relay = place.start(&["run", "--set", "log.level=debug"]);
    let sentence = format!("Kafka topic {topic}: the topic does not exist");
    eventually("it is said", || place.read("log").contains(&sentence));
    assert!(place.read("log").contains("`posthaste topics apply`"));
    make(&brokers, &topic, &[]);
    eventually("the message is delivered", || all_settled(&place));
    assert_eq!(records(&brokers, &topic, 1)[0].0, id);
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
}

#[test]
fn a_message_above_the_topics_limit_dies_with_the_reason_and_holds_nobody_up() {
    let Some(brokers) = shared() else { return };
    let topic = new_name();
    make(&brokers, &topic, &[("max.message.bytes", "2000")]);
    let place = with_kafka(Place::with_sqlite(), &brokers).migrated();
    place.write("large", &"x".repeat(5_000));
    place.enqueue(&["--topic", &topic, "--key", "a", "--payload", "@large"]);
    let small = place.enqueue(&["--topic", &topic, "--key", "b", "--payload", "1"]);
    place.run(&["run", "--drain"]).fails_with(&["delivered 1", "dead 1"]);
    assert_eq!(records(&brokers, &topic, 1)[0].0, small);
    assert!(all_settled(&place), "{}", place.status());
    assert_eq!(place.status()["dead"], 1);
    let dead = place.run(&["dead", "list", "--json"]).success().stdout;
    assert!(
        dead.contains("the topic takes 2000") && dead.contains("max.message.bytes"),
        "{dead}"
    );
}

#[test]
fn credentials_that_the_broker_refuses_are_said_to_be_wrong_and_never_shown() {
    let sasl_plain = Some(("ada".to_owned(), "right".to_owned()));
    let Some(cluster) = own(KafkaOptions {
        sasl_plain,
        ..KafkaOptions::default()
    }) else {
        return;
    };
    let with_password = |password: &str| {
        with_kafka(Place::with_sqlite(), &cluster.sasl_bootstrap().unwrap())
            .set("KAFKA__PROPERTIES__SECURITY__PROTOCOL", "sasl_plaintext")
            .set("KAFKA__PROPERTIES__SASL__MECHANISM", "PLAIN")
            .set("KAFKA__PROPERTIES__SASL__USERNAME", "ada")
            .set("KAFKA__PROPERTIES__SASL__PASSWORD", password)
            .migrated()
    };
    with_password("right").run(&["run", "--check"]).success();
    let place = with_password("hunter2");
    let ran = place.run(&["run", "--check"]);
    ran.fails_with(&[
        "the brokers refuse these credentials",
        "correct sasl.username and sasl.password",
    ]);
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");

    let topic = new_name();
    make(&cluster.bootstrap(), &topic, &[]);
    place.enqueue(&["--topic", &topic, "--payload", "1"]);
    let mut relay = place.start(&["run", "--set", "log.level=debug"]);
    eventually("it is said", || {
        place.read("log").contains("the brokers refuse these credentials")
    });
    assert_eq!(place.status()["dead"], 0, "credentials can be fixed");
    assert!(!place.read("log").contains("hunter2"));
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
}

#[cfg(feature = "kafka-tls")]
#[test]
fn a_certificate_that_nobody_trusts_is_named_and_one_that_is_trusted_works() {
    let Some(cluster) = own(KafkaOptions {
        tls: true,
        ..KafkaOptions::default()
    }) else {
        return;
    };
    let brokers = cluster.tls_bootstrap().unwrap();
    let place = || with_kafka(Place::with_sqlite(), &brokers);
    place()
        .set("KAFKA__PROPERTIES__SECURITY__PROTOCOL", "ssl")
        .migrated()
        .run(&["run", "--check"])
        .fails_with(&["the TLS handshake failed", "ssl.ca.location"]);
    // Without TLS against a port that wants it.
    place()
        .migrated()
        .run(&["run", "--check"])
        .fails_with(&["security.protocol"]);

    let topic = new_name();
    make(&cluster.bootstrap(), &topic, &[]);
    let place = place()
        .set("KAFKA__PROPERTIES__SECURITY__PROTOCOL", "ssl")
        .set(
            "KAFKA__PROPERTIES__SSL__CA__LOCATION",
            &cluster.ca_file().unwrap().display().to_string(),
        )
        .migrated();
    let id = place.enqueue(&["--topic", &topic, "--payload", "1"]);
    place.run(&["run", "--drain"]).success();
    assert_eq!(records(&cluster.bootstrap(), &topic, 1)[0].0, id);
}

#[track_caller]
fn refused(lines: &str, parts: &[&str]) {
    let place = Place::empty();
    place.write("posthaste.toml", &format!("[publisher]\nkind = 'kafka'\n{lines}"));
    let ran = place.run(&["run"]);
    ran.fails_with(parts);
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}

#[test]
fn bad_settings_are_refused_by_their_field_without_showing_secrets() {
    let kafka = "[kafka]\nbrokers = 'a:1'\n";
    let properties = format!("{kafka}[kafka.properties]\n");
    refused("", &["kafka.brokers: is missing", "127.0.0.1:9092"]);
    refused(
        "[kafka]\nbrokers = ['localhost']",
        &[
            "kafka.brokers = \"localhost\": write host:port",
            "(in posthaste.toml, line 4)",
        ],
    );
    refused(
        &format!("{properties}\"linger.sm\" = 5"),
        &["kafka.properties.linger.sm = (hidden): librdkafka has no such property"],
    );
    refused(
        &format!("{properties}sasl.pasword = 'hunter2'"),
        &["kafka.properties.sasl.pasword = (hidden): librdkafka has no such property"],
    );
    refused(
        &format!("{kafka}properties = 'sasl.password=hunter2'"),
        &["kafka.properties = (hidden): "],
    );
    refused(
        &format!("{properties}transactional.id = 'x'"),
        &["kafka.properties.transactional.id = \"x\": the publisher does not use transactions"],
    );
    refused(
        &format!("{properties}sasl.password = ['hunter2']"),
        &["kafka.properties", "(hidden)"],
    );
    refused(&format!("{properties}sasl.password = 'hunter2"), &["posthaste.toml"]);
    refused(
        &format!("format = 'xml'\n{kafka}"),
        &["publisher.format = \"xml\": unknown value; use binary or structured"],
    );
    refused(
        &format!("routes = [{{ to = '{{tenat}}' }}]\n{kafka}"),
        &["publisher.routes.0.to = \"{tenat}\": {tenat} is unknown; use {topic}"],
    );
    refused(
        &format!("answer_within = '40s'\n{kafka}"),
        &["publisher.answer_within = \"40s\": must be below relay.publish_timeout, which is 30s"],
    );
    refused(
        &format!("id_header = 'ce_id'\n{kafka}"),
        &["publisher.id_header = \"ce_id\": ", "messageId"],
    );
    refused(
        &format!("path = 'x'\n{kafka}"),
        &["publisher.path = \"x\": is for the file publisher"],
    );
    refused(
        &format!("{properties}acks = 1"),
        &["kafka", "`acks` must be set to `all`"],
    );
    let place = Place::empty();
    place.write("posthaste.toml", "[publisher]\nformat = 'structured'");
    place
        .run(&["run"])
        .fails_with(&["publisher.format = \"structured\": is for the kafka and http publishers"]);
    Place::empty()
        .set("KAFKA_BROKERS", "a:1")
        .run(&["run"])
        .fails_with(&["POSTHASTE_KAFKA__BROKERS"]);
}
