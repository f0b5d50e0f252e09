//! What a relay shows to Prometheus, held against the catalogue of its metrics and against the page about them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use posthaste_core::metric::{Metric, MetricKind};
use posthaste_relay::METRICS;

use crate::probes::{get, start};
use crate::support::{Place, TO_STDOUT, eventually, on_every_database};

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// The type and the labels of each metric that the page has a row for, in the words of the page.
fn rows() -> BTreeMap<&'static str, (&'static str, Vec<&'static str>)> {
    let cells = |line: &'static str| -> Option<[&'static str; 5]> {
        let cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        cells.collect::<Vec<_>>().try_into().ok()
    };
    let labels = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect();
    let rows = PAGE.lines().filter_map(cells);
    rows.map(|[name, kind, label_names, ..]| (name.trim_end_matches('`'), (kind, labels(label_names))))
        .collect()
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Histogram { .. } => "histogram",
        _ => "gauge",
    }
}

fn labels(metric: &Metric) -> Vec<&'static str> {
    metric.labels.iter().map(|label| label.name).collect()
}

#[test]
fn the_page_has_every_metric_of_a_relay_with_its_type_and_labels_and_no_other() {
    let mut rows = rows();
    rows.retain(|name, _| !name.starts_with("consumer_"));
    let catalogue: BTreeMap<_, _> = METRICS
        .iter()
        .map(|metric| (metric.name, (kind(metric), labels(metric))))
        .collect();
    assert_eq!(rows, catalogue);
    let version = env!("CARGO_PKG_VERSION");
    let values = METRICS
        .iter()
        .flat_map(|metric| metric.labels)
        .flat_map(|label| label.values);
    for value in values.filter(|value| **value != version) {
        assert!(
            PAGE.contains(&format!("`{value}`")),
            "the page does not say what {value} is"
        );
    }
}

/// What a relay shows: each series, as it stands there without its value, with its value.
#[derive(Debug, Default)]
struct Scrape {
    series: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
}

impl Scrape {
    fn of(port: u16) -> Option<Self> {
        let (_, text) = get(port, "/metrics")?;
        let mut scrape = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                scrape.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                scrape.series.insert(series.to_owned(), value.parse().unwrap());
            }
        }
        Some(scrape)
    }

    fn value(&self, series: &str) -> f64 {
        *self
            .series
            .get(series)
            .unwrap_or_else(|| panic!("no {series} in {self:#?}"))
    }

    /// Of all series of this name.
    fn sum(&self, name: &str) -> f64 {
        let of_name = self.series.iter().filter(|(series, _)| {
            let rest = series.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        });
        of_name.map(|(_, value)| value).sum()
    }

    /// The label sets of a metric, of a histogram without what exporters add.
    fn label_sets(&self, name: &str) -> BTreeSet<Vec<String>> {
        let sets = self.series.keys().filter_map(|series| {
            let (found, labels) = series.split_once('{').unwrap_or((series, "}"));
            let found = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| found.strip_suffix(suffix).filter(|found| *found == name))
                .unwrap_or(found);
            let names = labels.trim_end_matches('}').split(',');
            let names = names.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            (found == name).then(|| names.filter(|label| label != "le").collect())
        });
        sets.collect()
    }

    /// Nothing is shown but what the catalogue says, and with exactly those labels.
    #[track_caller]
    fn holds_to_the_catalogue(&self) {
        for (name, shown) in &self.types {
            let metric = METRICS.iter().find(|metric| metric.name == name);
            let metric = metric.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            assert_eq!(shown, kind(metric), "{name}");
            assert_eq!(
                self.label_sets(name),
                BTreeSet::from([labels(metric).into_iter().map(str::to_owned).collect()]),
                "{name}"
            );
        }
    }

    /// The metrics of the catalogue that are not shown.
    fn missing(&self) -> Vec<&'static str> {
        let names = METRICS.iter().map(|metric| metric.name);
        names.filter(|name| !self.types.contains_key(*name)).collect()
    }
}

/// One is MySQL's, the others are of a log on PostgreSQL.
const OF_OTHERS: [&str; 4] = [
    "outbox_store_retry_count",
    "outbox_log_shard_read",
    "outbox_log_shard_lag",
    "outbox_log_shard_readable",
];

/// An alert on an increase does not see a counter's first event unless the counter was there before it.
#[test]
fn a_relay_that_did_nothing_yet_shows_all_its_figures() {
    let place = Place::with_sqlite().migrated();
    let (_relay, port) = start(
        &place,
        &[&TO_STDOUT[..], &["--set", "relay.scope.topics=[\"orders\"]"]].concat(),
    );
    let mut scrape = Scrape::default();
    eventually("the janitor has counted", || {
        scrape = Scrape::of(port).unwrap_or_default();
        scrape.types.contains_key("outbox_pending_count")
    });
    // And no destination has failed.
    assert_eq!(
        scrape.missing(),
        [&["outbox_destination_circuit_state"], &OF_OTHERS[..]].concat()
    );
    scrape.holds_to_the_catalogue();
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("posthaste_build_info{{version=\"{version}\"}}");
    assert_eq!(scrape.value(&build).to_string(), "1");
}

#[test]
fn a_destination_that_is_unavailable_is_a_figure_beside_those_that_are_not() {
    let place = Place::with_sqlite().migrated();
    place.write(
        "posthaste.toml",
        "[[publishers]]\nname = 'partner'\nkind = 'http'\nurl = 'http://127.0.0.1:1/x'\n\
         [[publishers]]\nname = 'archive'\nkind = 'file'\npath = 'archive.jsonl'\n\
         [[routes]]\ntopic = 'orders'\nto = 'partner'\n[[routes]]\nto = 'archive'\n",
    );
    for _ in 0..6 {
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
    }
    let (_relay, port) = start(&place, &["--set", "relay.janitor_interval=100ms"]);
    let state =
        |place: &str| format!("outbox_destination_circuit_state{{namespace=\"default\",destination=\"{place}\"}}");
    let mut scrape = Scrape::default();
    eventually("the destination is unavailable, and every figure is there", || {
        scrape = Scrape::of(port).unwrap_or_default();
        let is_open = scrape.series.get(&state("partner")) == Some(&2.0);
        is_open && scrape.missing() == OF_OTHERS
    });
    let figures = [
        (state("archive"), "0"),
        ("outbox_destinations_unavailable{namespace=\"default\"}".to_owned(), "1"),
        ("outbox_circuit_state{namespace=\"default\"}".to_owned(), "0"),
    ];
    for (series, value) in figures {
        assert_eq!(scrape.value(&series).to_string(), value, "{series}");
    }
    scrape.holds_to_the_catalogue();
}

/// How long the receiver takes for an event that it accepts.
const ANSWER_TIME: Duration = Duration::from_millis(200);

/// A receiver that refuses some events, fails at others, and accepts the rest after a while.
fn receiver() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's process.
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(move || answer_all(connection.unwrap()));
        }
    });
    address
}

fn answer_all(connection: TcpStream) -> Option<()> {
    let mut stream = BufReader::new(connection);
    loop {
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let status = if body.contains("unacceptable") {
            "422 Unprocessable Content"
        } else if body.contains("troublesome") {
            "500 Internal Server Error"
        } else {
            thread::sleep(ANSWER_TIME);
            "200 OK"
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

/// Five arrive, two are refused, one fails until its attempts are used up, one was changed in the table, and one is not
/// due.
///
/// Proves E7.
fn what_happened_is_counted_and_measured(place: &Place) {
    place.run(&["migrate", "up"]).success();
    let enqueued = Instant::now();
    let enqueue = |topic: &str, payload: &str, more: &[&str]| {
        let payload = format!("{payload:?}");
        place.enqueue(&[&["--topic", topic, "--payload", &payload], more].concat());
    };
    for _ in 0..5 {
        enqueue("orders", "fine", &[]);
    }
    for _ in 0..2 {
        enqueue("orders", "unacceptable", &[]);
    }
    enqueue("payments", "troublesome", &[]);
    enqueue("archive", "true", &[]);
    enqueue("orders", "later", &["--not-before", "2100-01-01T00:00:00Z"]);
    let is_postgres = place.setting("DATABASE__SCHEMA").is_some();
    let outbox = if is_postgres { "outbox" } else { "posthaste_outbox" };
    place.sql(&format!(
        "update {outbox} set payload = '\"forged\"' where topic = 'archive'"
    ));

    let url = format!("publisher.url=http://{}/events", receiver());
    let relay = [
        "publisher.kind=http",
        &url,
        "relay.retry.max_attempts=2",
        "relay.retry.backoff={kind=\"schedule\",delays=[\"10ms\"]}",
        "relay.janitor_interval=100ms",
    ];
    let (_relay, port) = start(place, &relay.map(|setting| ["--set", setting]).concat());
    let mut scrape = Scrape::default();
    let topic = |name: &str, topic: &str| format!("{name}{{namespace=\"default\",topic=\"{topic}\"}}");
    let namespace = |name: &str| format!("{name}{{namespace=\"default\"}}");
    // Gauges are looked at every so often, each at its own time.
    let gauges = [
        ("outbox_pending_count", 1.0),
        ("outbox_waiting_count", 1.0),
        ("outbox_processing_count", 0.0),
        ("outbox_dead_count", 4.0),
        ("outbox_in_flight_messages", 0.0),
        ("outbox_in_flight_bytes", 0.0),
    ];
    eventually("all that is due is delivered or dead, and counted", || {
        scrape = Scrape::of(port).unwrap_or_default();
        let shows = |(name, value): (&str, f64)| scrape.series.get(&namespace(name)) == Some(&value);
        scrape.sum("outbox_processed_count") >= 5.0 && gauges.into_iter().all(shows)
    });
    scrape.holds_to_the_catalogue();

    let counted = |expected: &[(String, u32)]| {
        for (series, value) in expected {
            assert_eq!(
                scrape.value(series).to_string(),
                value.to_string(),
                "{series} in {scrape:#?}"
            );
        }
    };
    let dead = |topic: &str, reason: &str| {
        format!("outbox_dlq_count{{namespace=\"default\",topic=\"{topic}\",reason=\"{reason}\"}}")
    };
    for name in ["outbox_failure_count", "outbox_failed_count"] {
        counted(&[
            (topic(name, "orders"), 2),
            (topic(name, "payments"), 2),
            (topic(name, "archive"), 0),
        ]);
    }
    counted(&[
        (topic("outbox_processed_count", "orders"), 5),
        (topic("outbox_processed_count", "payments"), 0),
        (dead("orders", "refused"), 2),
        (dead("orders", "exhausted"), 0),
        (dead("payments", "exhausted"), 1),
        (dead("archive", "integrity"), 1),
        (topic("outbox_integrity_failure_count", "archive"), 1),
        (topic("outbox_integrity_failure_count", "orders"), 0),
        (namespace("outbox_claimed_count"), 10),
        (namespace("outbox_stalled_recovered_count"), 0),
        (namespace("outbox_process_latency_count"), 5),
    ]);

    // From the insert to the answer, on one machine with one clock. The database may keep whole milliseconds.
    let latency = scrape.value(&namespace("outbox_process_latency_sum"));
    let (least, most) = (5.0 * ANSWER_TIME.as_secs_f64(), 5.0 * enqueued.elapsed().as_secs_f64());
    assert!((least..most).contains(&latency), "{latency} s of {least} to {most}");
    let oldest = scrape.value(&namespace("outbox_oldest_age_seconds"));
    assert!((0.0..=enqueued.elapsed().as_secs_f64()).contains(&oldest), "{oldest}");
    assert!(scrape.value(&namespace("outbox_publish_seconds_sum")) >= ANSWER_TIME.as_secs_f64());
    for step in ["claim", "settle"] {
        assert!(scrape.value(&namespace(&format!("outbox_{step}_seconds_count"))) >= 1.0);
        let messages = scrape.value(&namespace(&format!("outbox_{step}_messages_sum")));
        assert!((messages - 10.0).abs() < f64::EPSILON, "{step}: {messages}");
    }
    assert!(scrape.value(&namespace("outbox_seconds_since_claim")) < 60.0);
}

on_every_database!(what_happened_is_counted_and_measured);
