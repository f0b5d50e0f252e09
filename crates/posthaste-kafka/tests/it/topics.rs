//! Declared topics on a real cluster.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_kafka::Connection;
use posthaste_kafka::error::Cause;
use posthaste_kafka::topics::{
    self, ApplyOptions, Change, DeclaredTopics, Outcome, Retention, TopicAdmin, TopicSpec, TopicState, TopicsError,
};
use posthaste_servers::{KafkaCluster, KafkaOptions};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;

use crate::patient_admin;
use crate::support::{cluster, unique};

/// The cluster as another client sees it.
struct Outside(AdminClient<DefaultClientContext>);

impl Outside {
    fn of(connection: &Connection) -> Self {
        Self(connection.client_config(&[]).unwrap().create().unwrap())
    }

    /// Partitions, and the replicas of each.
    fn shape(&self, topic: &str) -> Option<(usize, Vec<usize>)> {
        let metadata = self.0.inner().fetch_metadata(None, Duration::from_secs(10)).unwrap();
        let topic = metadata.topics().iter().find(|found| found.name() == topic)?;
        let replicas = topic.partitions().iter().map(|partition| {
            assert!(partition.leader() >= 0, "apply returned before there was a leader");
            partition.replicas().len()
        });
        Some((topic.partitions().len(), replicas.collect()))
    }

    /// What is set for the topic itself.
    async fn own_config(&self, topic: &str) -> BTreeMap<String, String> {
        let resources = [ResourceSpecifier::Topic(topic)];
        let mut described = self.0.describe_configs(&resources, &AdminOptions::new()).await.unwrap();
        let entries = described.remove(0).unwrap().entries.into_iter();
        entries
            .filter(|entry| entry.source == ConfigSource::DynamicTopic)
            .map(|entry| (entry.name, entry.value.unwrap_or_default()))
            .collect()
    }

    async fn create(&self, topic: &str, partitions: i32, replicas: i32, config: &[(&'static str, &'static str)]) {
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas));
        let new = config.iter().fold(new, |new, (name, value)| new.set(name, value));
        patient_admin::create_topic(&self.0, &new).await;
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.is_there(topic) {
            assert!(Instant::now() < deadline, "{topic} never came");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_there(&self, topic: &str) -> bool {
        let metadata = self.0.inner().fetch_metadata(None, Duration::from_secs(10)).unwrap();
        let topic = metadata.topics().iter().find(|found| found.name() == topic);
        topic.is_some_and(|topic| topic.partitions().iter().all(|partition| partition.leader() >= 0))
    }
}

fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn spec() -> TopicSpec {
    TopicSpec {
        replication_factor: Some(3),
        min_insync_replicas: Some(2),
        ..TopicSpec::default()
    }
}

/// Proves C13.
#[tokio::test]
async fn topics_are_created_as_declared_and_each_has_its_dead_letter_topic() {
    let Some(connection) = cluster() else { return };
    let (orders, views) = (unique("order-events"), unique("product-view-events"));
    let declared = DeclaredTopics::named([&orders]).defaults(spec()).topic(
        &views,
        TopicSpec {
            partitions: Some(5),
            config: config(&[("max.message.bytes", "2000000"), ("cleanup.policy", "compact")]),
            ..TopicSpec::default()
        },
    );
    let admin = TopicAdmin::new(&connection).unwrap();
    let plan = admin.plan(&declared).await.unwrap();
    let names: Vec<_> = plan.topics.iter().map(|topic| topic.topic.clone()).collect();
    let [orders_dlq, views_dlq] = [&orders, &views].map(|topic| format!("{topic}.dlq"));
    assert_eq!(names, [&*orders, &*orders_dlq, &*views, &*views_dlq]);
    let creates = |topic: &topics::PlannedTopic| matches!(topic.state, TopicState::Create { refusal: None, .. });
    assert!(plan.topics.iter().all(creates), "{plan:?}");

    let report = admin.apply(&plan, ApplyOptions::default()).await.unwrap();
    assert!(report.is_as_declared(), "{report:?}");
    assert!(
        report.topics.iter().all(|applied| applied.outcome == Outcome::Created),
        "{report:?}"
    );

    let outside = Outside::of(&connection);
    let seven_days = config(&[("retention.ms", "604800000"), ("min.insync.replicas", "2")]);
    let thirty_days = config(&[("retention.ms", "2592000000"), ("min.insync.replicas", "2")]);
    assert_eq!(outside.shape(&orders), Some((3, vec![3; 3])));
    assert_eq!(outside.own_config(&orders).await, seven_days);
    assert_eq!(outside.shape(&orders_dlq), Some((1, vec![3])));
    // What Kafka takes by default, and room for what is added to a dead letter.
    let mut expected = thirty_days.clone();
    expected.extend(config(&[("max.message.bytes", "1064972")]));
    assert_eq!(outside.own_config(&orders_dlq).await, expected);
    assert_eq!(outside.shape(&views), Some((5, vec![3; 5])));
    let mut expected = seven_days.clone();
    expected.extend(config(&[
        ("max.message.bytes", "2000000"),
        ("cleanup.policy", "compact"),
    ]));
    assert_eq!(outside.own_config(&views).await, expected);
    let mut expected = thirty_days.clone();
    expected.extend(config(&[("max.message.bytes", "2016384")]));
    assert_eq!(outside.own_config(&views_dlq).await, expected);

    let again = admin.plan(&declared).await.unwrap();
    assert!(again.is_as_declared(), "{again:?}");
    let report = admin.apply(&again, ApplyOptions::default()).await.unwrap();
    assert!(
        report
            .topics
            .iter()
            .all(|applied| applied.outcome == Outcome::Untouched),
        "{report:?}"
    );
}

#[tokio::test]
async fn settings_are_changed_and_those_of_others_survive() {
    let Some(connection) = cluster() else { return };
    let topic = unique("stock-events");
    let outside = Outside::of(&connection);
    outside
        .create(
            &topic,
            3,
            3,
            &[
                ("retention.ms", "1000"),
                ("max.message.bytes", "123456"),
                ("segment.ms", "77000"),
            ],
        )
        .await;
    let declared = DeclaredTopics::default().topic(
        &topic,
        TopicSpec {
            dlq: Some(false),
            config: config(&[("max.message.bytes", "500000")]),
            ..spec()
        },
    );
    let admin = TopicAdmin::new(&connection).unwrap();
    let plan = admin.plan(&declared).await.unwrap();
    let differences: Vec<_> = plan.topics[0]
        .differences()
        .iter()
        .map(|difference| {
            (
                &*difference.field,
                &*difference.declared,
                &*difference.found,
                difference.change,
            )
        })
        .collect();
    assert_eq!(
        differences,
        [
            ("max.message.bytes", "500000", "123456", Change::Apply),
            ("retention.ms", "604800000", "1000", Change::Apply),
        ],
        "min.insync.replicas = 2 is inherited, which is as good"
    );
    // Somebody sets something between the plan and its application.
    let mut all = AlterConfig::new(ResourceSpecifier::Topic(&topic));
    all.entries = [
        ("retention.ms", "1000"),
        ("max.message.bytes", "123456"),
        ("segment.ms", "77000"),
        ("flush.messages", "9"),
    ]
    .into();
    outside.0.alter_configs(&[all], &AdminOptions::new()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    // Any broker may be asked, and some learn of it later than others.
    let mut seen = 0;
    while seen < 20 {
        let is_set = outside.own_config(&topic).await.contains_key("flush.messages");
        seen = if is_set { seen + 1 } else { 0 };
        assert!(Instant::now() < deadline, "the setting never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let report = admin.apply(&plan, ApplyOptions::default()).await.unwrap();
    assert!(report.is_as_declared(), "{report:?}");
    let fields = ["max.message.bytes", "retention.ms"].map(str::to_owned).to_vec();
    assert_eq!(report.topics[0].outcome, Outcome::Changed { fields });
    let expected = config(&[
        ("retention.ms", "604800000"),
        ("max.message.bytes", "500000"),
        ("segment.ms", "77000"),
        ("flush.messages", "9"),
    ]);
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let found = outside.own_config(&topic).await;
        if found == expected {
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_breaks_order_or_loses_records_is_done_on_demand_only() {
    let Some(connection) = cluster() else { return };
    let topic = unique("like-events");
    let outside = Outside::of(&connection);
    outside.create(&topic, 1, 2, &[("retention.ms", "-1")]).await;
    let declared = DeclaredTopics::default().topic(
        &topic,
        TopicSpec {
            dlq: Some(false),
            min_insync_replicas: None,
            ..spec()
        },
    );
    let admin = TopicAdmin::new(&connection).unwrap();
    let left = |differences: &[topics::Difference]| -> Vec<(String, Change)> {
        let pair = |difference: &topics::Difference| (difference.field.clone(), difference.change);
        differences.iter().map(pair).collect()
    };
    let all = [
        ("partitions".to_owned(), Change::GrowPartitions),
        ("replication_factor".to_owned(), Change::ByHand),
        ("retention.ms".to_owned(), Change::AllowLoss),
    ];
    let plan = admin.plan(&declared).await.unwrap();
    assert_eq!(left(plan.topics[0].differences()), all);
    let remedies: Vec<_> = plan.topics[0]
        .differences()
        .iter()
        .filter_map(|found| found.note.clone())
        .collect();
    assert!(
        remedies[0].contains("out of order") && remedies[1].contains("kafka-reassign-partitions"),
        "{remedies:?}"
    );

    let report = admin.apply(&plan, ApplyOptions::default()).await.unwrap();
    assert_eq!(report.topics[0].outcome, Outcome::Untouched);
    assert_eq!(left(&report.topics[0].left), all);
    assert_eq!(outside.shape(&topic), Some((1, vec![2])));

    let growing = ApplyOptions {
        grow_partitions: true,
        allow_loss: true,
    };
    let report = admin.apply(&plan, growing).await.unwrap();
    let fields = ["partitions", "retention.ms"].map(str::to_owned).to_vec();
    assert_eq!(report.topics[0].outcome, Outcome::Changed { fields }, "{report:?}");
    assert_eq!(left(&report.topics[0].left), all[1..2]);
    assert_eq!(outside.shape(&topic).unwrap().0, 3);
    assert_eq!(
        outside.own_config(&topic).await,
        config(&[("retention.ms", "604800000")])
    );

    let fewer = declared.topic(
        &topic,
        TopicSpec {
            partitions: Some(2),
            dlq: Some(false),
            ..TopicSpec::default()
        },
    );
    let plan = admin.plan(&fewer).await.unwrap();
    let report = admin.apply(&plan, growing).await.unwrap();
    assert_eq!(
        left(&report.topics[0].left),
        [("partitions".to_owned(), Change::ByHand)]
    );
    assert_eq!(outside.shape(&topic).unwrap().0, 3);
}

#[tokio::test]
async fn topics_that_others_create_meanwhile_are_no_failure() {
    let Some(connection) = cluster() else { return };
    let topic = unique("raced");
    let declared = DeclaredTopics::named([&topic]).defaults(spec());
    let admin = TopicAdmin::new(&connection).unwrap();
    let plan = admin.plan(&declared).await.unwrap();
    Outside::of(&connection).create(&topic, 2, 3, &[]).await;
    let report = admin.apply(&plan, ApplyOptions::default()).await.unwrap();
    assert_eq!(report.topics[0].outcome, Outcome::CreatedByOthers);
    assert_eq!(report.topics[0].left[0].field, "partitions", "how it differs is said");
    assert_eq!(report.topics[1].outcome, Outcome::Created);

    // Instances of one service that all start at the same moment.
    let declared = DeclaredTopics::named([unique("a"), unique("b")]).defaults(spec());
    let reports = tokio::join!(
        topics::ensure(&connection, &declared),
        topics::ensure(&connection, &declared),
        topics::ensure(&connection, &declared)
    );
    for report in [reports.0, reports.1, reports.2] {
        assert!(report.unwrap().is_as_declared());
    }
}

#[tokio::test]
async fn what_the_cluster_refuses_is_known_before_it_is_tried() {
    let Some(connection) = cluster() else { return };
    let [many, unknown, good] = ["many", "unknown", "good"].map(unique);
    let single = |spec: TopicSpec| TopicSpec {
        dlq: Some(false),
        ..spec
    };
    let declared = DeclaredTopics::default()
        .topic(
            &many,
            single(TopicSpec {
                replication_factor: Some(9),
                ..TopicSpec::default()
            }),
        )
        .topic(
            &unknown,
            single(TopicSpec {
                config: config(&[("max.mesage.bytes", "5")]),
                ..TopicSpec::default()
            }),
        )
        .topic(&good, single(TopicSpec::default()));
    let admin = TopicAdmin::new(&connection).unwrap();
    let plan = admin.plan(&declared).await.unwrap();
    let refusal = |name: &str| {
        let planned = plan.topics.iter().find(|planned| planned.topic == name).unwrap();
        match &planned.state {
            TopicState::Create { refusal, .. } => refusal.clone(),
            other => panic!("{other:?}"),
        }
    };
    let reason = refusal(&many).unwrap();
    assert!(reason.contains("3 brokers, which cannot keep 9 copies"), "{reason}");
    let reason = refusal(&unknown).unwrap();
    assert!(
        reason.contains("max.mesage.bytes=5") && reason.contains("correct its name"),
        "{reason}"
    );
    assert_eq!(refusal(&good), None);

    let report = admin.apply(&plan, ApplyOptions::default()).await.unwrap();
    assert_eq!(report.failures().count(), 2, "{report:?}");
    let outside = Outside::of(&connection);
    assert_eq!(
        outside.shape(&good).map(|(count, _)| count),
        Some(3),
        "the others are created"
    );
    assert_eq!(outside.shape(&many), None);
    let error = topics::ensure(&connection, &declared).await.unwrap_err();
    assert!(error.to_string().contains(&format!("Kafka topic {many}: ")), "{error}");
}

/// The client library hides that the cluster refused.
#[tokio::test]
async fn a_setting_that_the_cluster_did_not_take_is_a_failure() {
    let Some(connection) = cluster() else { return };
    let topic = unique("refused");
    Outside::of(&connection).create(&topic, 3, 3, &[]).await;
    let declared = DeclaredTopics::default().topic(
        &topic,
        TopicSpec {
            dlq: Some(false),
            config: config(&[("compression.type", "none-such")]),
            ..spec()
        },
    );
    let error = topics::ensure(&connection, &declared).await.unwrap_err().to_string();
    assert!(error.contains("did not take compression.type=none-such"), "{error}");
}

#[tokio::test]
async fn nothing_that_was_not_declared_is_touched() {
    let Some(connection) = cluster() else { return };
    let (other, topic) = (unique("other"), unique("declared"));
    let outside = Outside::of(&connection);
    outside.create(&other, 2, 1, &[("retention.ms", "5000")]).await;
    let declared = DeclaredTopics::default().topic(
        &topic,
        TopicSpec {
            retention: Some(Retention::Forever),
            dlq: Some(false),
            ..TopicSpec::default()
        },
    );
    topics::ensure(&connection, &declared).await.unwrap();
    topics::ensure(&connection, &DeclaredTopics::default()).await.unwrap();
    assert_eq!(
        outside.shape(&topic).map(|(count, _)| count),
        Some(3),
        "it is declared no more, and stays"
    );
    assert_eq!(outside.own_config(&topic).await, config(&[("retention.ms", "-1")]));
    assert_eq!(outside.shape(&other), Some((2, vec![1, 1])));
    assert_eq!(outside.own_config(&other).await, config(&[("retention.ms", "5000")]));
}

#[tokio::test]
async fn a_cluster_that_is_unavailable_is_said_with_the_remedy() {
    let declared = DeclaredTopics::named(["order-events"]);
    let start = Instant::now();
    let error = topics::ensure(&Connection::to("127.0.0.1:1"), &declared)
        .await
        .unwrap_err();
    let TopicsError::Cluster(explanation) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(explanation.cause, Cause::BrokerUnavailable);
    let text = error.to_string();
    assert!(
        text.contains("no broker answers at 127.0.0.1:1") && text.contains("correct kafka.brokers"),
        "{text}"
    );
    assert!(!text.contains("tried again"), "nobody tries again: {text}");
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
}

#[tokio::test]
async fn who_may_not_is_told_what_to_ask_for() {
    if cluster().is_none() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let options = KafkaOptions {
        brokers: 1,
        sasl_plain: Some(("ada".to_owned(), "right".to_owned())),
        properties: vec![
            property(
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            ),
            property("super.users", "User:ANONYMOUS"),
        ],
        ..KafkaOptions::default()
    };
    let servers = KafkaCluster::start_with(parent.path(), &options).unwrap();
    let ada = |password: &str| {
        Connection::to(&servers.sasl_bootstrap().unwrap())
            .property("security.protocol", "sasl_plaintext")
            .property("sasl.mechanism", "PLAIN")
            .property("sasl.username", "ada")
            .property("sasl.password", password)
    };
    let declared = DeclaredTopics::named(["order-events"]);
    let error = topics::ensure(&ada("right"), &declared).await.unwrap_err().to_string();
    assert!(
        error.contains("Kafka topic order-events: access is denied; grant this client's user Create"),
        "{error}"
    );
    let error = topics::ensure(&ada("wrong"), &declared).await.unwrap_err().to_string();
    assert!(
        error.contains("refuse these credentials") && error.contains("sasl.username and sasl.password"),
        "{error}"
    );
    assert!(!error.contains("wrong"), "{error}");

    // On one broker the settings of three make topics that cannot be written.
    let in_sync = declared.defaults(TopicSpec {
        min_insync_replicas: Some(2),
        ..TopicSpec::default()
    });
    let error = topics::ensure(&Connection::to(&servers.bootstrap()), &in_sync)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("default.replication.factor is 1, so nothing could be written"),
        "{error}"
    );
}
