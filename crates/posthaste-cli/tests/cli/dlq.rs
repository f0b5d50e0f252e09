//! Dead-letter topics: seen and replayed.

use std::time::Duration;

use nix::sys::signal::Signal;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::{Background, Place, eventually};
use crate::topics::{brokers, unique, with_kafka};

const TIMEOUT: Duration = Duration::from_mins(1);

/// A topic, its dead-letter topic, and a place that knows them.
struct Post {
    place: Place,
    topic: String,
    producer: BaseProducer,
}

impl Post {
    fn new() -> Option<Self> {
        let place = with_kafka()?;
        let topic = unique("order-events");
        place.write("posthaste.toml", &format!("[kafka.topics.{topic}]\n"));
        place.run(&["topics", "apply"]).success();
        let producer = ClientConfig::new()
            .set("bootstrap.servers", brokers())
            .create()
            .unwrap();
        Some(Self { place, topic, producer })
    }

    fn dlq(&self) -> String {
        format!("{}.dlq", self.topic)
    }

    /// Writes letters as a consumer does, with their numbers as id, key and payload.
    fn write_dead_letters(&self, numbers: std::ops::Range<u32>) {
        for n in numbers {
            let event_type = if n % 2 == 0 {
                "shop.order.created.v1"
            } else {
                "shop.order.paid.v1"
            };
            let n = n.to_string();
            let payload = format!("{{\"n\":{n}}}");
            let offset = n.as_str();
            let headers = [
                ("ce_specversion", "1.0"),
                ("ce_id", &n),
                ("ce_type", event_type),
                ("traceparent", "00-abc"),
                ("posthaste_dlq_error", "division by zero\nat statistics.rs:7"),
                ("posthaste_dlq_attempts", "4"),
                ("posthaste_dlq_topic", &self.topic),
                ("posthaste_dlq_partition", "1"),
                ("posthaste_dlq_offset", offset),
                ("posthaste_dlq_time", "2026-11-15T09:30:00.123Z"),
                ("posthaste_dlq_group", "statistics"),
            ];
            let headers = headers.into_iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header {
                    key,
                    value: Some(value),
                })
            });
            self.write(
                BaseRecord::to(&self.dlq())
                    .key(n.as_bytes())
                    .payload(payload.as_bytes())
                    .headers(headers),
            );
        }
        self.producer.flush(TIMEOUT).unwrap();
    }

    fn write(&self, record: BaseRecord<'_, [u8], [u8]>) {
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
    }

    fn dlq_command(&self, args: &[&str]) -> crate::support::Ran {
        self.place.run(&[&["dlq"], args].concat())
    }

    /// The payloads that came back to the topic.
    fn delivered(&self) -> Vec<Vec<u8>> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers())
            .set("group.id", "reader")
            .create()
            .unwrap();
        let mut stretch = TopicPartitionList::new();
        let mut expected = 0;
        for partition in 0..3 {
            let (low, high) = consumer.fetch_watermarks(&self.topic, partition, TIMEOUT).unwrap();
            expected += usize::try_from(high - low).unwrap();
            stretch
                .add_partition_offset(&self.topic, partition, Offset::Beginning)
                .unwrap();
        }
        consumer.assign(&stretch).unwrap();
        let mut payloads = Vec::new();
        eventually("all records are read", || {
            while let Some(Ok(record)) = consumer.poll(Duration::from_millis(100)) {
                payloads.push(record.payload().unwrap_or_default().to_vec());
            }
            payloads.len() >= expected
        });
        payloads
    }

    fn wait_for_letters(&self, count: i64) {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers())
            .create()
            .unwrap();
        eventually("some letters came back", || {
            consumer.fetch_watermarks(&self.topic, 1, TIMEOUT).unwrap().1 > count
        });
    }

    /// How often each number came back.
    fn counts(&self, numbers: std::ops::Range<u32>) -> Vec<usize> {
        let delivered = self.delivered();
        let count = |n: u32| {
            let payload = format!("{{\"n\":{n}}}");
            delivered.iter().filter(|found| **found == payload.as_bytes()).count()
        };
        numbers.map(count).collect()
    }
}

#[test]
fn letters_are_listed_and_shown() {
    let Some(post) = Post::new() else { return };
    post.write_dead_letters(0..2);
    post.write(
        BaseRecord::to(&post.dlq())
            .key(&[0xff, 1][..])
            .payload(&[0xff, 0, b'h', b'i'][..]),
    );
    post.producer.flush(TIMEOUT).unwrap();
    let (topic, dlq) = (post.topic.as_str(), post.dlq());

    let overview = post.dlq_command(&["list"]).success().stdout;
    let row = overview.lines().find(|line| line.contains(&dlq)).unwrap();
    let row: Vec<_> = row.split_whitespace().collect();
    assert_eq!(row[..], [&*dlq, "3", "2026-11-15", "09:30:00"], "{overview}");
    let json = post.dlq_command(&["list", "--json"]).success().stdout;
    let json: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let own = json.iter().find(|summary| summary["topic"] == *dlq).unwrap();
    assert_eq!(
        (&own["open"], &own["oldest"]),
        (&3.into(), &"2026-11-15T09:30:00.123Z".into())
    );

    let list = post.dlq_command(&["list", topic]).success().stdout;
    let words = |number: usize| {
        list.lines()
            .nth(number)
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(words(0), "OFFSET TIME ID TYPE KEY ATTEMPTS STATE ERROR");
    assert!(
        words(1).starts_with("0 2026-11-15") && words(1).contains(" open division by"),
        "{list}"
    );
    let filtered = [
        "list",
        topic,
        "--where",
        "type=shop.order.paid.v1",
        "--where",
        "error=by zero",
        "--json",
    ];
    let filtered = post.dlq_command(&filtered).success();
    assert_eq!(
        (filtered.stdout.lines().count(), &filtered.json()["offset"]),
        (1, &1.into())
    );
    assert_eq!(
        post.dlq_command(&["list", &dlq, "--limit", "2", "--json"])
            .success()
            .stdout
            .lines()
            .count(),
        2
    );

    let shown = post.dlq_command(&["show", topic, "1"]).success().stdout;
    for line in [
        &format!("letter     {dlq}, partition 0, offset 1"),
        "state      open",
        "time       2026-11-15 09:30:00",
        &format!("from       {topic}, partition 1, offset 1"),
        "group      statistics",
        "attempts   4",
        "error      division by zero",
        "           at statistics.rs:7",
        "id         1",
        "type       shop.order.paid.v1",
        "key        1",
        "header     traceparent: 00-abc",
        "payload    7 bytes",
        "{\"n\":1}",
    ] {
        assert!(shown.lines().any(|found| found == line), "no line {line:?} in\n{shown}");
    }
    let json = post.dlq_command(&["show", topic, "1", "--json"]).success().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["payload"]["n"], &json["origin_partition"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        post.dlq_command(&["show", topic, "1", "--payload"]).success().stdout,
        "{\"n\":1}"
    );
    let strange = post.dlq_command(&["show", topic, "2"]).success().stdout;
    assert!(
        strange.contains("00000000  ff 00 68 69") && strange.contains("key        0xff01"),
        "{strange}"
    );
    assert!(
        strange.contains(&format!("from       {topic} (by its name)")),
        "{strange}"
    );
}

#[test]
fn letters_are_replayed_once_as_asked_for() {
    let Some(post) = Post::new() else { return };
    post.write_dead_letters(0..5);
    let topic = post.topic.as_str();
    post.dlq_command(&["replay", topic])
        .fails_with(&["every open letter", "--all"]);
    let dry = post
        .dlq_command(&["replay", topic, "--all", "--dry-run"])
        .success()
        .stdout;
    assert!(dry.ends_with("would replay 5\n"), "{dry}");
    assert_eq!(post.delivered().len(), 0);

    let one = post.dlq_command(&["replay", topic, "--offset", "3"]).success().stdout;
    assert_eq!(one, format!("replayed 1: 1 to {topic}\n"));
    post.dlq_command(&["replay", topic, "--offset", "3"]).fails_with(&[
        "offset 3",
        "was replayed already",
        "higher offset",
    ]);
    let created = [
        "replay",
        topic,
        "--where",
        "type=shop.order.created.v1",
        "--limit",
        "2",
        "--json",
    ];
    assert_eq!(post.dlq_command(&created).success().json()["replayed"], 2);
    let open = post.dlq_command(&["list", topic, "--open", "--json"]).success().stdout;
    let offset = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["offset"]
            .as_i64()
            .unwrap()
    };
    assert_eq!(open.lines().map(offset).collect::<Vec<_>>(), [1, 4]);
    let list = post.dlq_command(&["list", topic]).success().stdout;
    assert_eq!(list.matches(" replayed ").count(), 3, "{list}");

    assert_eq!(
        post.dlq_command(&["replay", topic, "--all"]).success().stdout,
        format!("replayed 2: 2 to {topic}\n")
    );
    assert_eq!(
        post.dlq_command(&["replay", topic, "--all"]).success().stdout,
        "replayed 0\n"
    );
    assert_eq!(post.counts(0..5), [1; 5]);
    assert_eq!(
        post.dlq_command(&["list", topic, "--open"]).success().stdout,
        "no letters\n"
    );
}

/// Proves pitfall 22.
#[test]
fn of_two_processes_one_replays_and_the_other_is_told() {
    let Some(post) = Post::new() else { return };
    post.write_dead_letters(0..300);
    let replay = || {
        let mut command = post.place.command(&["dlq", "replay", &post.topic, "--all"]);
        let (out, err) = (
            tempfile::NamedTempFile::new().unwrap(),
            tempfile::NamedTempFile::new().unwrap(),
        );
        command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
        (Background::of(command.spawn().unwrap()), out, err)
    };
    let mut both = [replay(), replay()];
    let mut replayed = 0;
    for (process, out, err) in &mut both {
        match process.exit_code() {
            Some(0) => {
                let said = std::fs::read_to_string(out.path()).unwrap();
                let count = said.trim_start_matches("replayed ").split([':', '\n']).next().unwrap();
                replayed += count.parse::<usize>().unwrap();
            }
            code => {
                let said = std::fs::read_to_string(err.path()).unwrap();
                assert!(
                    code == Some(1) && said.contains("another process is replaying"),
                    "{code:?} {said}"
                );
            }
        }
    }
    assert_eq!(replayed, 300);
    assert_eq!(post.counts(0..300), [1; 300], "each once");
}

/// Until a killed process counts as dead, the others are told to wait; then they go on where it was.
#[test]
fn a_replay_that_was_killed_is_continued_without_loss() {
    const LETTERS: u32 = 3_000;
    let Some(post) = Post::new() else { return };
    post.write_dead_letters(0..LETTERS);
    let killed = post.place.start(&["dlq", "replay", &post.topic, "--all"]);
    post.wait_for_letters(200);
    killed.signal(Signal::SIGKILL);
    let mut told = false;
    eventually("the replay goes on", || {
        let ran = post.dlq_command(&["replay", &post.topic, "--all"]);
        let waits = ran.stderr.contains("another process is replaying") && ran.stderr.contains("10 s");
        assert!(ran.code == Some(0) || waits, "{ran:?}");
        told |= waits;
        ran.code == Some(0)
    });
    assert!(told, "the killed process was still in the group");
    let counts = post.counts(0..LETTERS);
    assert!(counts.iter().all(|count| *count >= 1), "a letter is lost");
    let repeated = counts.iter().filter(|count| **count > 1).count();
    assert!(
        repeated <= 100,
        "{repeated} letters were sent twice; at most those of one commit may be"
    );
    assert_eq!(
        post.dlq_command(&["list", &post.topic, "--open"]).success().stdout,
        "no letters\n"
    );
}

/// A process that was halted for so long that another one went on must stop, and must not undo what that one recorded.
#[test]
fn a_replay_that_was_halted_stops_when_another_went_on() {
    const LETTERS: u32 = 3_000;
    let Some(post) = Post::new() else { return };
    post.write_dead_letters(0..LETTERS);
    let mut halted = post.place.start(&["dlq", "replay", &post.topic, "--all"]);
    post.wait_for_letters(200);
    halted.signal(Signal::SIGSTOP);
    eventually("another one goes on", || {
        post.dlq_command(&["replay", &post.topic, "--all"]).code == Some(0)
    });
    halted.signal(Signal::SIGCONT);
    assert_eq!(halted.exit_code(), Some(1), "{}", post.place.read("out"));
    let said = post.place.read("log");
    assert!(said.contains("was taken for dead while it replayed"), "{said}");
    let open = post.dlq_command(&["list", &post.topic, "--open"]).success().stdout;
    assert_eq!(open, "no letters\n", "it undid nothing");
    let counts = post.counts(0..LETTERS);
    assert!(counts.iter().all(|count| *count >= 1), "a letter is lost");
    let repeated = counts.iter().filter(|count| **count > 1).count();
    assert!(repeated <= 200, "{repeated} letters were sent twice");
}

#[test]
fn what_is_not_there_is_said_with_the_remedy() {
    let Some(post) = Post::new() else { return };
    post.dlq_command(&["list", "no-such"])
        .fails_with(&["there is no topic no-such.dlq", &post.dlq()]);
    post.dlq_command(&["show", &post.topic, "7"]).fails_with(&[
        "no letter at offset 7",
        "offsets 0 to below 0",
        "`posthaste dlq list",
    ]);
    post.dlq_command(&["replay", &post.topic, "--offset", "7"])
        .fails_with(&["no letter at offset 7"]);
    let unavailable = ["dlq", "list", "--set", "kafka.brokers=127.0.0.1:1"];
    Place::empty()
        .run(&unavailable)
        .fails_with(&["no broker answers at 127.0.0.1:1"]);
    Place::empty()
        .run(&["dlq", "list"])
        .fails_with(&["kafka.brokers: is missing"]);
    let wrong = post.dlq_command(&["list", &post.topic, "--where", "colour=red"]);
    assert!(
        wrong.code == Some(2) && wrong.stderr.contains("use type, id, key, group or error"),
        "{wrong:?}"
    );
}
