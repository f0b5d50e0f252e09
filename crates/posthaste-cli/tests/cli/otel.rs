//! Traces and metrics by OTLP, as a collector receives them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use posthaste_core::metric::MetricKind;
use prost::Message;

use crate::support::{DRAIN, Place, Ran, TO_STDOUT, eventually};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// A collector that takes everything, but for what it refuses.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Request>>>, &'static str);

struct Request {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Collector {
    /// A collector and its address.
    fn start() -> (Self, String) {
        Self::refusing("nothing")
    }

    /// One that refuses the requests of a path.
    fn refusing(path: &'static str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self(Arc::default(), path);
        let received = collector.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let received = received.clone();
                std::thread::spawn(move || received.serve(&stream.unwrap()));
            }
        });
        (collector, address)
    }

    fn serve(&self, stream: &TcpStream) {
        let (mut reader, mut writer) = (BufReader::new(stream), stream);
        while let Some(request) = read(&mut reader) {
            let status = if request.path == self.1 {
                "404 Not Found"
            } else {
                "200 OK"
            };
            self.0.lock().unwrap().push(request);
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n");
            writer.write_all(answer.as_bytes()).unwrap();
        }
    }

    fn decoded<M: Message + Default>(&self, path: &str) -> Vec<M> {
        let requests = self.0.lock().unwrap();
        let of_path = requests.iter().filter(|request| request.path == path);
        of_path
            .map(|request| {
                assert_eq!(request.headers["content-type"], "application/x-protobuf");
                M::decode(&request.body[..]).unwrap()
            })
            .collect()
    }

    fn spans(&self) -> Vec<(String, Span)> {
        let received = self.decoded::<ExportTraceServiceRequest>("/v1/traces").into_iter();
        let resources = received.flat_map(|request| request.resource_spans);
        resources
            .flat_map(|resource| {
                let service = service(resource.resource.as_ref());
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.map(move |span| (service.clone(), span)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn metrics(&self) -> Vec<(String, Metric)> {
        let received = self.decoded::<ExportMetricsServiceRequest>("/v1/metrics").into_iter();
        let resources = received.flat_map(|request| request.resource_metrics);
        resources
            .flat_map(|resource| {
                let service = service(resource.resource.as_ref());
                let metrics = resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
                metrics.map(move |metric| (service.clone(), metric)).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// The next request of a connection.
fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    let header = |line: &String| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    let headers: HashMap<_, _> = lines[1..].iter().map(header).collect();
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    Some(Request { path, headers, body })
}

fn text(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|pair| pair.key == name);
    match found.and_then(|pair| pair.value.as_ref()?.value.clone()) {
        Some(any_value::Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

fn service(resource: Option<&Resource>) -> String {
    text(&resource.unwrap().attributes, "service.name")
}

fn hex(bytes: &[u8]) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap());
    bytes.iter().flat_map(digits).collect()
}

fn place() -> Place {
    let place = Place::with_sqlite().migrated();
    let trace = format!("traceparent=00-{TRACE}-{SPAN}-01");
    place.enqueue(&["--topic", "orders", "--payload", "{}", "--header", &trace]);
    place
}

/// What a counter says, over all its series.
fn count(metrics: &[(String, Metric)], name: &str) -> i64 {
    let found = metrics.iter().rfind(|(_, metric)| metric.name == name);
    let Some(metric::Data::Sum(sum)) = found.and_then(|(_, metric)| metric.data.clone()) else {
        panic!("{name} is not among the counters: {metrics:?}");
    };
    let number = |value| match value {
        Some(number_data_point::Value::AsInt(number)) => number,
        other => panic!("{other:?}"),
    };
    sum.data_points.into_iter().map(|point| number(point.value)).sum()
}

#[test]
fn a_collector_gets_a_span_of_each_attempt_and_all_metrics_before_the_command_ends() {
    let (collector, address) = Collector::start();
    let endpoint = format!("otel.endpoint={address}/");
    let place = place();
    place.enqueue(&["--topic", "untraced", "--payload", "{}"]);
    let otel = ["--set", &endpoint, "--set", "otel.headers.x-api-key=secret"];
    place.run(&[&DRAIN[..], &otel].concat()).success();

    let spans = collector.spans();
    let [(service, span)] = &spans[..] else {
        panic!("one message belongs to a trace: {spans:?}")
    };
    assert_eq!((service.as_str(), span.name.as_str()), ("posthaste", "send orders"));
    assert_eq!(
        (hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()),
        (TRACE, SPAN)
    );
    assert_eq!(span.links.len(), 1);
    assert_eq!(text(&span.attributes, "messaging.system"), "stdout");
    assert_eq!(text(&span.attributes, "posthaste.outbox.outcome"), "delivered");
    let metrics = collector.metrics();
    assert_eq!(count(&metrics, "outbox_processed_count"), 2);
    let latency = metrics
        .iter()
        .find(|(_, metric)| metric.name == "outbox_process_latency");
    assert!(matches!(latency.unwrap().1.data, Some(metric::Data::Histogram(_))));
    let histograms = metrics.iter().filter_map(|(_, metric)| match &metric.data {
        Some(metric::Data::Histogram(histogram)) => Some((&metric.name, &histogram.data_points[0].explicit_bounds)),
        _ => None,
    });
    for (name, bounds) in histograms {
        let declared = posthaste_relay::METRICS
            .iter()
            .find(|metric| metric.name == name)
            .unwrap();
        let buckets = match declared.kind {
            MetricKind::Histogram { buckets } => buckets,
            other => panic!("{name} is declared as {other:?}"),
        };
        assert_eq!(bounds, buckets, "{name}");
    }
    let gauge = metrics.iter().find(|(_, metric)| metric.name == "outbox_circuit_state");
    assert!(matches!(gauge.unwrap().1.data, Some(metric::Data::Gauge(_))));
    let requests = collector.0.lock().unwrap();
    assert!(requests.iter().all(|request| request.headers["x-api-key"] == "secret"));
}

#[test]
fn the_variables_of_open_telemetry_do_as_they_do_elsewhere() {
    let (collector, address) = Collector::start();
    let place = place();
    let mut command = place.command(&[&DRAIN[..], &["--set", "metrics.listen=127.0.0.1:0"]].concat());
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &address)
        .env("OTEL_SERVICE_NAME", "shop-relay")
        .env("OTEL_TRACES_SAMPLER", "always_off");
    Ran::of(&mut command, "").success();
    assert_eq!(collector.spans(), []);
    let metrics = collector.metrics();
    assert_eq!(count(&metrics, "outbox_processed_count"), 1);
    assert!(metrics.iter().all(|(service, _)| service == "shop-relay"));

    let place = self::place();
    let mut command = place.command(&DRAIN);
    command
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{address}/v1/traces"))
        .env("OTEL_TRACES_SAMPLER", "parentbased_always_on");
    Ran::of(&mut command, "").success();
    assert_eq!(collector.spans().len(), 1);
    assert_eq!(collector.metrics().len(), metrics.len(), "only traces were asked for");
}

/// One that refuses connections, and one that takes them and says nothing.
#[test]
fn a_collector_that_is_unavailable_is_said_once_and_stops_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("otel.endpoint=http://{}", silent.local_addr().unwrap());
    for endpoint in ["otel.endpoint=http://127.0.0.1:1", &silent] {
        let place = place();
        let mut command = place.command(&[&["run"], &TO_STDOUT[..], &["--set", endpoint]].concat());
        command
            .env("OTEL_BSP_SCHEDULE_DELAY", "20")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "20")
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "300");
        let mut relay = place.start_command(command);
        eventually("it is delivered", || place.read("out").lines().count() == 1);
        eventually("it is said", || {
            place
                .read("log")
                .contains("the OpenTelemetry collector cannot be reached")
        });
        let trace = format!("traceparent=00-{TRACE}-{SPAN}-01");
        place.enqueue(&["--topic", "orders", "--payload", "{}", "--header", &trace]);
        eventually("the next one is delivered", || place.read("out").lines().count() == 2);
        let asked_to_stop = Instant::now();
        relay.signal(Signal::SIGTERM);
        assert_eq!(relay.exit_code(), Some(0));
        assert!(asked_to_stop.elapsed() < Duration::from_secs(15));
        let log = place.read("log");
        for signal in ["traces", "metrics"] {
            let said = log.matches(&format!("does not answer; {signal} are dropped")).count();
            assert!(said <= 1, "{signal}: {log}");
        }
        assert!(log.matches("the OpenTelemetry collector").count() <= 2, "{log}");
    }
}

/// Many take one signal only.
#[test]
fn a_collector_that_refuses_traces_is_said_once_and_of_traces_only() {
    let (collector, address) = Collector::refusing("/v1/traces");
    let place = place();
    let endpoint = format!("otel.endpoint={address}");
    let mut command = place.command(&[&["run"], &TO_STDOUT[..], &["--set", &endpoint]].concat());
    command
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "20");
    let mut relay = place.start_command(command);
    let requests = |path: &str| {
        let requests = collector.0.lock().unwrap();
        requests.iter().filter(|request| request.path == path).count()
    };
    let trace = format!("traceparent=00-{TRACE}-{SPAN}-01");
    for more in 1..4 {
        let metrics = requests("/v1/metrics");
        eventually("traces are sent", || requests("/v1/traces") >= more);
        eventually("metrics are sent", || requests("/v1/metrics") > metrics);
        place.enqueue(&["--topic", "orders", "--payload", "{}", "--header", &trace]);
    }
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
    let log = place.read("log");
    assert_eq!(log.matches("the OpenTelemetry collector").count(), 1, "{log}");
    assert!(log.contains("collector refuses traces") && log.contains("404"), "{log}");
}

/// Those of the variables are shown by nobody else.
#[test]
fn secrets_of_an_address_are_not_in_the_log() {
    let place = place();
    for address in ["http://me:s3cret@127.0.0.1:1?key=s3cret", "http://me:s3cret@/"] {
        let mut command = place.command(&DRAIN);
        let ran = Ran::of(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address), "");
        assert!(
            ran.stderr.contains("OpenTelemetry") || ran.stderr.contains("OTEL_"),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let place = Place::with_sqlite();
    let run = |setting: &str| place.run(&["run", "--drain", "--set", setting]);
    run("otel.endpoint=collector:4317").fails_with(&["otel.endpoint", "http://127.0.0.1:4318"]);
    run("otel.headers.x key=s3cret").fails_with(&["otel.headers.x key", "is no name of an HTTP header"]);
    run("otel.protocol=grpc").fails_with(&["otel.protocol", "http/protobuf"]);
    run("otel.sample_ratio=2").fails_with(&["otel.sample_ratio", "from 0 to 1"]);
    run("otel.service=x").fails_with(&["otel.service", "service_name"]);
}
