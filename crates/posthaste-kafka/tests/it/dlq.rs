//! Dead-letter topics on a real cluster.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use posthaste_kafka::Connection;
use posthaste_kafka::dead_letter::DeadLetter;
use posthaste_kafka::dlq::{self, DeadLetterTopic, DlqError, Selection, group_of};
use posthaste_kafka::topics::{self, DeclaredTopics, TopicSpec};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::{cluster, unique};

/// A topic with its dead-letter topic.
struct Post {
    connection: Connection,
    topic: String,
    dlq: String,
    producer: FutureProducer,
}

type Record = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>, i32);

impl Post {
    async fn new() -> Option<Self> {
        Self::with(TopicSpec::default()).await
    }

    async fn with(spec: TopicSpec) -> Option<Self> {
        let connection = cluster()?;
        let topic = unique("order-events");
        let declared = DeclaredTopics::default().topic(&topic, spec);
        topics::ensure(&connection, &declared).await.unwrap();
        Some(Self {
            dlq: format!("{topic}.dlq"),
            producer: connection
                .client_config(&[("message.max.bytes", "10000000")])
                .unwrap()
                .create()
                .unwrap(),
            connection,
            topic,
        })
    }

    async fn open(&self) -> DeadLetterTopic {
        DeadLetterTopic::open(&self.connection, &self.dlq).await.unwrap()
    }

    fn death(&self, partition: i32) -> DeadLetter {
        DeadLetter {
            error: "division by zero".to_owned(),
            attempts: 4,
            topic: self.topic.clone(),
            partition,
            offset: 41,
            time: DateTime::from_timestamp_millis(1_700_000_000_123).unwrap(),
            group: "statistics".to_owned(),
        }
    }

    fn event_headers(id: &str, event_type: &str) -> OwnedHeaders {
        [("ce_specversion", "1.0"), ("ce_id", id), ("ce_type", event_type)]
            .into_iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header {
                    key,
                    value: Some(value),
                })
            })
    }

    /// Writes a letter as a consumer does.
    async fn write_dead_letter(&self, id: &str, event_type: &str, payload: &[u8]) {
        let headers = self.death(1).add_to(Some(&Self::event_headers(id, event_type)));
        self.write(Some(id.as_bytes()), Some(payload), headers).await;
    }

    async fn write(&self, key: Option<&[u8]>, payload: Option<&[u8]>, headers: OwnedHeaders) {
        let record = FutureRecord {
            topic: &self.dlq,
            partition: None,
            payload,
            key,
            timestamp: None,
            headers: Some(headers),
        };
        self.producer.send(record, Duration::from_secs(10)).await.unwrap();
    }

    /// All that came back to the topic, by partition and offset.
    fn delivered(&self) -> Vec<Record> {
        read(&self.connection, &self.topic, 3)
    }

    fn payloads(&self) -> Vec<String> {
        let text = |(_, payload, ..): Record| String::from_utf8(payload.unwrap()).unwrap();
        self.delivered().into_iter().map(text).collect()
    }
}

fn read(connection: &Connection, topic: &str, partitions: i32) -> Vec<Record> {
    let config = [("group.id", "reader"), ("enable.auto.commit", "false")];
    let consumer: BaseConsumer = connection.client_config(&config).unwrap().create().unwrap();
    let mut stretch = TopicPartitionList::new();
    let mut expected = 0;
    for partition in 0..partitions {
        let (low, high) = consumer
            .fetch_watermarks(topic, partition, Duration::from_secs(10))
            .unwrap();
        expected += high - low;
        stretch
            .add_partition_offset(topic, partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&stretch).unwrap();
    let mut records = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while i64::try_from(records.len()).unwrap() < expected {
        assert!(Instant::now() < deadline, "{} of {expected}", records.len());
        let Some(Ok(record)) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let headers = record.headers().map_or_else(Vec::new, |headers| {
            let owned = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
            headers.iter().map(owned).collect()
        });
        let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        records.push((
            record.partition(),
            record.offset(),
            bytes(record.key()),
            bytes(record.payload()),
            headers,
        ));
    }
    records.sort();
    let record = |(partition, _, key, payload, headers)| (key, payload, headers, partition);
    records.into_iter().map(record).collect()
}

/// A topic of which a request may have so many bytes.
fn taking(bytes: &str) -> TopicSpec {
    TopicSpec {
        config: [("max.message.bytes".to_owned(), bytes.to_owned())].into(),
        ..TopicSpec::default()
    }
}

fn everything() -> Selection {
    Selection::default()
}

fn at(offsets: &[i64]) -> Selection {
    Selection {
        offsets: offsets.to_vec(),
        ..Selection::default()
    }
}

#[tokio::test]
async fn a_letter_goes_back_with_its_bytes_key_headers_and_partition() {
    let Some(post) = Post::new().await else { return };
    let strange = OwnedHeaders::new()
        .insert(Header {
            key: "raw",
            value: Some(&[0xff, 0, 1][..]),
        })
        .insert(Header {
            key: "none",
            value: None::<&[u8]>,
        })
        .insert(Header {
            key: "twice",
            value: Some(&b"1"[..]),
        })
        .insert(Header {
            key: "twice",
            value: Some(&b"2"[..]),
        });
    let key = [7, 0xfe, 0];
    let payload: Vec<u8> = (0..=255).collect();
    post.write(Some(&key), Some(&payload), post.death(2).add_to(Some(&strange)))
        .await;
    post.write(None, None, post.death(0).add_to(Some(&strange))).await;

    let replayed = post.open().await.replay(&everything(), |_| {}).await.unwrap();
    assert_eq!((replayed.letters, replayed.topics.get(&post.topic)), (2, Some(&2)));
    let own = |value: &[u8]| Some(value.to_vec());
    let headers = vec![
        ("raw".to_owned(), own(&[0xff, 0, 1])),
        ("none".to_owned(), None),
        ("twice".to_owned(), own(b"1")),
        ("twice".to_owned(), own(b"2")),
        ("posthaste_replayed".to_owned(), own(b"1")),
    ];
    assert_eq!(
        post.delivered(),
        [
            (None, None, headers.clone(), 0),
            (own(&key), Some(payload.clone()), headers, 2),
        ]
    );
}

#[tokio::test]
async fn a_letter_that_dies_again_counts_its_replays() {
    let Some(post) = Post::new().await else { return };
    let once = Post::event_headers("1", "shop.order.created.v1").insert(Header {
        key: "posthaste_replayed",
        value: Some("3"),
    });
    post.write(None, Some(b"x"), post.death(0).add_to(Some(&once))).await;
    post.open().await.replay(&everything(), |_| {}).await.unwrap();
    let (_, _, headers, _) = post.delivered().remove(0);
    let counts: Vec<_> = headers
        .iter()
        .filter(|(name, _)| name == "posthaste_replayed")
        .collect();
    assert_eq!(counts, [&("posthaste_replayed".to_owned(), Some(b"4".to_vec()))]);
}

#[tokio::test]
async fn letters_of_other_programs_are_shown_and_go_to_the_topic_of_the_name() {
    let Some(post) = Post::new().await else { return };
    post.write(Some(b"k"), Some(b"not json"), OwnedHeaders::new()).await;
    let topic = post.open().await;
    let letter = topic.letter(0, 0).await.unwrap();
    assert_eq!((&letter.origin, &letter.death, &letter.id), (&post.topic, &None, &None));
    assert!(letter.time().unwrap() > Utc::now() - Duration::from_mins(10));
    topic.replay(&everything(), |_| {}).await.unwrap();
    let (key, payload, ..) = post.delivered().remove(0);
    assert_eq!(
        (key.as_deref(), payload.as_deref()),
        (Some(&b"k"[..]), Some(&b"not json"[..]))
    );
}

#[tokio::test]
async fn what_was_replayed_is_remembered_in_any_order() {
    let Some(post) = Post::new().await else { return };
    for n in 0..6 {
        let event_type = if n % 2 == 0 {
            "shop.order.created.v1"
        } else {
            "shop.order.paid.v1"
        };
        post.write_dead_letter(&n.to_string(), event_type, n.to_string().as_bytes())
            .await;
    }
    let topic = post.open().await;
    let open = async |topic: &DeadLetterTopic| {
        let selection = Selection {
            open: true,
            ..Selection::default()
        };
        let letters = topic.letters(&selection).await.unwrap();
        let offsets: Vec<i64> = letters.iter().map(|letter| letter.offset).collect();
        assert_eq!(topic.open_letters().await.unwrap(), offsets.len() as u64);
        offsets
    };
    assert_eq!(open(&topic).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(topic.replay(&at(&[4]), |_| {}).await.unwrap().letters, 1);
    assert_eq!(open(&topic).await, [0, 1, 2, 3, 5]);
    let again = topic.replay(&at(&[4]), |_| {}).await.unwrap_err();
    assert!(matches!(again, DlqError::AlreadyReplayed { offset: 4, .. }), "{again}");

    let paid = Selection {
        event_type: Some("shop.order.paid.v1".to_owned()),
        limit: Some(2),
        ..Selection::default()
    };
    assert_eq!(topic.replay(&paid, |_| {}).await.unwrap().letters, 2);
    assert_eq!(open(&topic).await, [0, 2, 5]);

    post.write_dead_letter("6", "shop.order.created.v1", b"6").await;
    let fresh = post.open().await;
    let before = fresh.summary().await.unwrap();
    assert_eq!((before.open, before.oldest), (4, Some(post.death(0).time)));
    assert_eq!(fresh.replay(&everything(), |_| {}).await.unwrap().letters, 4);
    assert_eq!(open(&fresh).await, [0_i64; 0]);
    assert_eq!(fresh.replay(&everything(), |_| {}).await.unwrap().letters, 0);
    assert_eq!(
        post.payloads(),
        ["4", "1", "3", "0", "2", "5", "6"],
        "in order, each once"
    );
    let all = fresh.letters(&everything()).await.unwrap();
    assert_eq!(all.len(), 7, "they are all still there");
    assert!(all.iter().all(|letter| letter.replayed));
    assert_eq!(dlq::open_letters(&post.connection, &post.dlq).await.unwrap(), 0);
}

/// Kafka forgets the offsets of a group after a week; dead letters are kept for a month.
#[tokio::test]
async fn what_was_replayed_is_known_when_the_group_is_forgotten() {
    let Some(post) = Post::new().await else { return };
    for n in ["0", "1", "2"] {
        post.write_dead_letter(n, "shop.order.created.v1", n.as_bytes()).await;
    }
    let topic = post.open().await;
    topic.replay(&at(&[0, 2]), |_| {}).await.unwrap();
    let admin: AdminClient<DefaultClientContext> = post.connection.client_config(&[]).unwrap().create().unwrap();
    let group = group_of(&post.dlq);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let deleted = admin.delete_groups(&[&group], &AdminOptions::new()).await.unwrap();
        if deleted.iter().all(Result::is_ok) {
            break;
        }
        assert!(Instant::now() < deadline, "{deleted:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let fresh = post.open().await;
    let replayed: Vec<_> = fresh
        .letters(&everything())
        .await
        .unwrap()
        .iter()
        .map(|letter| letter.replayed)
        .collect();
    assert_eq!(replayed, [true, false, true]);
    assert_eq!(fresh.replay(&everything(), |_| {}).await.unwrap().letters, 1);
    assert_eq!(post.payloads(), ["0", "2", "1"]);
}

/// Proves pitfall 22.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_operators_at_once_one_replays() {
    let Some(post) = Post::new().await else { return };
    for n in 0..250 {
        post.write_dead_letter(&n.to_string(), "shop.order.created.v1", n.to_string().as_bytes())
            .await;
    }
    let mut operators = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let topic = post.open().await;
        operators.spawn(async move { topic.replay(&everything(), |_| {}).await });
    }
    let results = operators.join_all().await;
    let replayed: u64 = results.iter().flatten().map(|replayed| replayed.letters).sum();
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(refused, DlqError::ReplayInProgress { .. }), "{refused}");
        assert!(
            refused.to_string().contains("another process is replaying"),
            "{refused}"
        );
    }
    assert_eq!(replayed, 250, "{results:?}");
    let mut payloads = post.payloads();
    assert_eq!(payloads.len(), 250);
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), 250, "none twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_somebody_replays_is_told_by_whom() {
    let Some(post) = Post::new().await else { return };
    for n in 0..101 {
        post.write_dead_letter(&n.to_string(), "shop.order.created.v1", b"x")
            .await;
    }
    let (first, second) = (post.open().await, post.open().await);
    let mut refusal = None;
    let handle = tokio::runtime::Handle::current();
    let replayed = first
        .replay(&everything(), |letter| {
            if letter.offset == 0 {
                let all = everything();
                let attempt = second.replay(&all, |_| {});
                refusal = Some(tokio::task::block_in_place(|| handle.block_on(attempt)).unwrap_err());
            }
        })
        .await
        .unwrap();
    let refusal = refusal.unwrap();
    assert!(
        matches!(&refusal, DlqError::ReplayInProgress { who: Some(who), .. } if who.contains("posthaste")),
        "{refusal}"
    );
    assert_eq!(replayed.letters, 101, "the first one is not disturbed");
    assert_eq!(post.delivered().len(), 101);
}

#[tokio::test]
async fn letters_that_come_in_meanwhile_wait_for_the_next_time() {
    let Some(post) = Post::new().await else { return };
    post.write_dead_letter("0", "shop.order.created.v1", b"0").await;
    let topic = post.open().await;
    let mut dying = Vec::new();
    let replayed = topic
        .replay(&everything(), |letter| {
            // It dies again at once.
            let record = FutureRecord::<[u8], [u8]>::to(&post.dlq).payload(b"again");
            dying.push(post.producer.send_result(record).unwrap());
            assert_eq!(letter.offset, 0);
        })
        .await
        .unwrap();
    dying.remove(0).await.unwrap().unwrap();
    assert_eq!(replayed.letters, 1);
    assert_eq!(topic.open_letters().await.unwrap(), 1);
}

#[tokio::test]
async fn several_partitions_are_replayed_one_after_the_other() {
    let spec = TopicSpec {
        dlq_partitions: Some(3),
        ..TopicSpec::default()
    };
    let Some(post) = Post::with(spec).await else { return };
    for n in 0..30 {
        post.write_dead_letter(&n.to_string(), "shop.order.created.v1", n.to_string().as_bytes())
            .await;
    }
    let topic = post.open().await;
    let one = Selection {
        partition: Some(2),
        ..at(&[0])
    };
    assert_eq!(topic.replay(&one, |_| {}).await.unwrap().letters, 1);
    assert_eq!(topic.open_letters().await.unwrap(), 29);
    assert_eq!(topic.replay(&everything(), |_| {}).await.unwrap().letters, 29);
    assert_eq!(topic.open_letters().await.unwrap(), 0);
    assert_eq!(post.delivered().len(), 30);
}

#[tokio::test]
async fn what_cannot_be_sent_stops_the_replay_and_stays_open() {
    let Some(post) = Post::new().await else { return };
    post.write_dead_letter("0", "shop.order.created.v1", b"0").await;
    let elsewhere = DeadLetter {
        topic: unique("nowhere"),
        ..post.death(0)
    };
    post.write(None, Some(b"1"), elsewhere.add_to(Some(&OwnedHeaders::new())))
        .await;
    post.write_dead_letter("2", "shop.order.created.v1", b"2").await;
    let topic = post.open().await;
    let error = topic.replay(&everything(), |_| {}).await.unwrap_err();
    assert!(
        matches!(
            &error,
            DlqError::Unsendable {
                offset: 1,
                replayed: 1,
                ..
            }
        ),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains(&elsewhere.topic) && text.contains("`posthaste topics apply`"),
        "{text}"
    );
    assert_eq!(topic.open_letters().await.unwrap(), 2);
    let rest = Selection {
        group: Some("statistics".to_owned()),
        error: Some("by zero".to_owned()),
        key: Some("2".to_owned()),
        ..Selection::default()
    };
    assert_eq!(topic.replay(&rest, |_| {}).await.unwrap().letters, 1);
    assert_eq!(post.payloads(), ["0", "2"]);
}

/// Letters of one key go back in their order, and none of them after one that failed.
#[tokio::test]
async fn a_letter_that_fails_stops_those_of_its_key() {
    let Some(post) = Post::with(taking("2000")).await else {
        return;
    };
    let large = "x".repeat(5_000);
    for (key, payload) in [
        ("a", "1"),
        ("b", "2"),
        ("a", &large),
        ("a", "4"),
        ("b", "5"),
        ("a", "6"),
    ] {
        let headers = post
            .death(1)
            .add_to(Some(&Post::event_headers(payload, "shop.order.created.v1")));
        post.write(Some(key.as_bytes()), Some(payload.as_bytes()), headers)
            .await;
    }
    let topic = post.open().await;
    let error = topic.replay(&everything(), |_| {}).await.unwrap_err();
    assert!(matches!(&error, DlqError::Unsendable { offset: 2, .. }), "{error}");
    assert!(error.to_string().contains("too large"), "{error}");
    let of_key = |key: &str| -> Vec<String> {
        let delivered = post.delivered();
        let of_key = delivered
            .into_iter()
            .filter(|(of, ..)| of.as_deref() == Some(key.as_bytes()));
        of_key
            .map(|(_, payload, ..)| String::from_utf8(payload.unwrap()).unwrap())
            .collect()
    };
    assert_eq!(of_key("a"), ["1"]);
    assert_eq!(of_key("b"), ["2", "5"]);
    assert_eq!(topic.open_letters().await.unwrap(), 3);
}

/// Together they are far above what the topic takes, whatever the settings say of the size of requests.
#[tokio::test]
async fn letters_that_fit_one_by_one_are_not_refused_together() {
    let Some(post) = Post::with(taking("20000")).await else {
        return;
    };
    for n in 0..50 {
        let id = n.to_string();
        post.write_dead_letter(&id, "shop.order.created.v1", &[b'x'; 1_000])
            .await;
    }
    let connection = post.connection.clone().property("batch.num.messages", "1000");
    let topic = DeadLetterTopic::open(&connection, &post.dlq).await.unwrap();
    assert_eq!(topic.replay(&everything(), |_| {}).await.unwrap().letters, 50);
    assert_eq!(post.delivered().len(), 50);
}

#[tokio::test]
async fn of_letters_that_are_sent_together_the_one_that_is_too_large_is_named() {
    let Some(post) = Post::with(taking("2000")).await else {
        return;
    };
    for n in 0..10 {
        let bytes = if n == 5 { 5_000 } else { 10 };
        let payload = vec![b'x'; bytes];
        post.write_dead_letter(&n.to_string(), "shop.order.created.v1", &payload)
            .await;
    }
    let topic = post.open().await;
    let error = topic.replay(&everything(), |_| {}).await.unwrap_err();
    assert!(
        matches!(
            &error,
            DlqError::Unsendable {
                offset: 5,
                replayed: 9,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn how_large_a_letter_may_be_is_for_its_topic_to_say() {
    let Some(post) = Post::with(taking("3000000")).await else {
        return;
    };
    let large = vec![b'x'; 1_500_000];
    post.write_dead_letter("0", "shop.order.created.v1", &large).await;
    assert_eq!(
        post.open().await.replay(&everything(), |_| {}).await.unwrap().letters,
        1
    );
}

/// With nothing to do in it a partition that is not there would look replayed.
#[tokio::test]
async fn a_partition_that_is_not_there_is_named_with_those_that_are() {
    let Some(post) = Post::new().await else { return };
    let topic = post.open().await;
    let seventh = Selection {
        partition: Some(7),
        ..Selection::default()
    };
    for error in [
        topic.replay(&seventh, |_| {}).await.unwrap_err(),
        topic.letters(&seventh).await.unwrap_err(),
        topic.letter(7, 0).await.unwrap_err(),
    ] {
        let expected = format!("{} has no partition 7; its partitions are 0", post.dlq);
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_with_what_is() {
    let Some(post) = Post::new().await else { return };
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let error = DeadLetterTopic::open(&post.connection, "no-such.dlq")
            .await
            .unwrap_err();
        if error.to_string().contains(&post.dlq) {
            break;
        }
        // Any broker may be asked, and some learn of a topic later than others.
        assert!(Instant::now() < deadline, "{error}");
    }
    let error = post.open().await.letter(0, 5).await.unwrap_err().to_string();
    assert!(
        error.contains("offsets 0 to below 0") && error.contains("`posthaste dlq list"),
        "{error}"
    );
    let summaries = dlq::summaries(&post.connection).await.unwrap();
    let own = summaries.iter().find(|summary| summary.topic == post.dlq).unwrap();
    assert_eq!((own.open, own.oldest), (0, None));
}
