//! A private Kafka cluster, seen from outside with a client.

use std::time::{Duration, Instant};

use futures::executor::block_on;
use posthaste_servers::{KafkaCluster, KafkaOptions};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};

const TIMEOUT: Duration = Duration::from_mins(2);

#[test]
fn what_was_acknowledged_survives_one_broker_and_then_all_of_them() {
    let Some((_parent, cluster)) = start(&KafkaOptions::default()) else {
        return;
    };
    let addresses = cluster.bootstrap();
    assert_eq!((cluster.brokers(), cluster.is_running()), (3, true));
    assert_eq!(cluster.sasl_bootstrap(), None);
    assert_eq!(cluster.tls_bootstrap(), None);
    create_topic(&addresses);

    let producer: BaseProducer = client(&addresses).create().unwrap();
    send(&producer, "first");
    cluster.kill(0).unwrap();
    assert!(!cluster.is_running());
    cluster.kill(0).expect("killing twice is no error");
    send(&producer, "without one broker");
    cluster.start_again(0).unwrap();
    assert!(cluster.is_running());

    cluster.kill_all().unwrap();
    cluster.start_all_again().unwrap();
    cluster.stop(1).unwrap();
    assert!(!cluster.is_running());
    send(&producer, "after all that");

    assert_eq!(cluster.bootstrap(), addresses);
    assert_eq!(read(&addresses, 3), ["first", "without one broker", "after all that"]);
}

#[test]
fn a_detached_cluster_runs_on_until_somebody_attaches() {
    let options = KafkaOptions {
        tls: true,
        sasl_plain: Some(("ada".into(), "right".into())),
        brokers: 1,
        ..KafkaOptions::default()
    };
    let Some((_parent, cluster)) = start(&options) else {
        return;
    };
    let addresses = (cluster.bootstrap(), cluster.sasl_bootstrap(), cluster.tls_bootstrap());
    let home = cluster.detach();

    let cluster = KafkaCluster::attach(&home).unwrap();
    assert_eq!(
        (cluster.bootstrap(), cluster.sasl_bootstrap(), cluster.tls_bootstrap()),
        addresses
    );
    assert!(cluster.is_running());
    only_the_right_password_is_let_in(&cluster);
    only_who_trusts_the_authority_gets_through(&cluster);

    drop(cluster);
    assert!(!home.exists());
    assert!(KafkaCluster::attach(&home).is_err());
}

fn only_the_right_password_is_let_in(cluster: &KafkaCluster) {
    let answers = |password: &str| {
        let mut config = client(&cluster.sasl_bootstrap().expect("SASL was asked for"));
        config.set("security.protocol", "sasl_plaintext");
        config.set("sasl.mechanism", "PLAIN");
        config.set("sasl.username", "ada").set("sasl.password", password);
        answers(&config)
    };
    assert!(answers("right"));
    assert!(!answers("wrong"));
}

fn only_who_trusts_the_authority_gets_through(cluster: &KafkaCluster) {
    let mut config = client(&cluster.tls_bootstrap().expect("TLS was asked for"));
    config.set("security.protocol", "ssl");
    assert!(!answers(&config));
    let ca_file = cluster.ca_file().expect("TLS was asked for");
    config.set("ssl.ca.location", ca_file.display().to_string());
    assert!(answers(&config));
}

/// `None` where the test runner said that there is no Kafka on this machine.
fn start(options: &KafkaOptions) -> Option<(tempfile::TempDir, KafkaCluster)> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "kafka") {
        return None;
    }
    let parent = tempfile::tempdir().expect("a temporary directory");
    let cluster = KafkaCluster::start_with(parent.path(), options).expect("a cluster");
    Some((parent, cluster))
}

fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

fn create_topic(bootstrap: &str) {
    let admin: AdminClient<DefaultClientContext> = client(bootstrap).create().expect("a client");
    // As many replicas as the cluster says.
    let topic = NewTopic::new("kept", 1, TopicReplication::Fixed(-1));
    let created = block_on(admin.create_topics([&topic], &AdminOptions::new())).expect("an answer");
    assert_eq!(created, [Ok("kept".to_owned())]);
}

fn send(producer: &BaseProducer, payload: &str) {
    let record = BaseRecord::<(), str>::to("kept").payload(payload);
    producer
        .send(record)
        .map_err(|(error, _)| error)
        .expect("room in the queue");
    producer.flush(TIMEOUT).expect("an acknowledgement");
}

fn read(bootstrap: &str, count: usize) -> Vec<String> {
    let consumer: BaseConsumer = client(bootstrap).set("group.id", "readers").create().expect("a client");
    let mut partitions = TopicPartitionList::new();
    partitions
        .add_partition_offset("kept", 0, Offset::Beginning)
        .expect("a valid offset");
    consumer.assign(&partitions).expect("an assignment");
    let deadline = Instant::now() + TIMEOUT;
    let mut payloads = Vec::new();
    while payloads.len() < count {
        assert!(Instant::now() < deadline, "got only {payloads:?}");
        // An error tells of a broker that is down; the client goes on with the others.
        if let Some(Ok(message)) = consumer.poll(Duration::from_secs(1)) {
            payloads.push(String::from_utf8_lossy(message.payload().expect("a payload")).into_owned());
        }
    }
    payloads
}

fn answers(config: &ClientConfig) -> bool {
    let client: BaseProducer = config.create().expect("a client");
    client.client().fetch_metadata(None, Duration::from_secs(3)).is_ok()
}
