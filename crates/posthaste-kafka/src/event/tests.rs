use std::collections::BTreeMap;

use chrono::{DateTime, TimeZone, Utc};
use cloudevents::{AttributesReader, Data, EventBuilder, EventBuilderV10};
use posthaste_core::Message;
use posthaste_core::validate::{Limits, TypeNameRule, validate};
use proptest::prelude::*;
use rdkafka::message::{Header, Headers as _, OwnedHeaders};

use super::format::is_taken;
use super::*;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn message() -> Message {
    Message::new("order-events", r#"{"orderId": 42 }"#)
        .event_type("acme.order.created.v1")
        .source("shop")
        .aggregate("Order", "42")
        .key("customer-7")
        .tenant("t1")
        .header("traceparent", TRACE)
        .header("X-Request-Id", "r1")
}

fn time() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 15, 12, 0, 0).unwrap() + chrono::Duration::microseconds(7)
}

fn list(headers: &OwnedHeaders) -> BTreeMap<String, String> {
    let text = |header: Header<'_, &[u8]>| {
        let value = String::from_utf8(header.value.unwrap().to_vec()).unwrap();
        (header.key.to_owned(), value)
    };
    let listed: BTreeMap<_, _> = headers.iter().map(text).collect();
    assert_eq!(listed.len(), headers.count(), "no header twice");
    listed
}

fn back(encoded: &Encoded<'_>) -> Result<ReceivedEvent, DecodeError> {
    decode(Some(encoded.headers.as_borrowed()), Some(&encoded.payload))
}

fn headers(pairs: &[(&str, &str)]) -> OwnedHeaders {
    let header = |headers: OwnedHeaders, &(key, value): &(&str, &str)| {
        headers.insert(Header {
            key,
            value: Some(value),
        })
    };
    pairs.iter().fold(OwnedHeaders::new(), header)
}

#[test]
fn binary_mode_is_what_the_specification_says() {
    let message = message();
    let encoded = encode(&message, time(), Format::Binary).unwrap();
    let id = message.id.to_string();
    let expected = [
        ("ce_specversion", "1.0"),
        ("ce_id", &id),
        ("ce_source", "shop"),
        ("ce_type", "acme.order.created.v1"),
        ("ce_time", "2026-11-15T12:00:00.000007Z"),
        ("ce_subject", "42"),
        ("ce_partitionkey", "customer-7"),
        ("ce_aggregatetype", "Order"),
        ("ce_aggregateid", "42"),
        ("ce_tenant", "t1"),
        ("content-type", "application/json"),
        ("traceparent", TRACE),
        ("X-Request-Id", "r1"),
    ];
    let expected: BTreeMap<_, _> = expected.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    assert_eq!(list(&encoded.headers), expected);
    assert_eq!(&*encoded.payload, br#"{"orderId": 42 }"#);
    assert_eq!(encoded.key, Some("customer-7"));
}

#[test]
fn structured_mode_is_read_by_the_sdk() {
    let message = message();
    let encoded = encode(&message, time(), Format::Structured).unwrap();
    let listed = list(&encoded.headers);
    assert_eq!(listed["content-type"], "application/cloudevents+json; charset=UTF-8");
    assert_eq!(listed["traceparent"], TRACE);
    assert_eq!(listed.len(), 3);
    let event: cloudevents::Event = serde_json::from_slice(&encoded.payload).unwrap();
    assert_eq!(event.id(), message.id.to_string());
    assert_eq!(event.ty(), "acme.order.created.v1");
    assert_eq!(event.source(), "shop");
    assert_eq!(event.subject(), Some("42"));
    assert_eq!(event.extension("traceparent").unwrap().to_string(), TRACE);
    assert_eq!(event.data(), Some(&Data::Json(serde_json::json!({"orderId": 42}))));
}

#[test]
fn what_the_sdk_writes_is_read() {
    let event = EventBuilderV10::new()
        .id("1")
        .ty("acme.order.created.v1")
        .source("http://shop")
        .extension("sequence", 5_i64)
        .data("application/json", serde_json::json!({"n": 1}))
        .build()
        .unwrap();
    let json = serde_json::to_vec(&event).unwrap();
    let headers = headers(&[("Content-Type", "application/cloudevents+json")]);
    let received = decode(Some(headers.as_borrowed()), Some(&json)).unwrap();
    assert_eq!(
        (received.id.as_str(), received.source.as_deref()),
        ("1", Some("http://shop"))
    );
    assert_eq!(received.headers["sequence"], "5");
    assert_eq!(received.payload, r#"{"n":1}"#);
    assert_eq!(received.content_type.as_deref(), Some("application/json"));
}

#[test]
fn the_key_is_the_ordering_key_else_the_aggregate() {
    assert_eq!(key(&message()), Some("customer-7"));
    let mut keyless = message();
    keyless.ordering_key = None;
    assert_eq!(key(&keyless), Some("42"));
    assert_eq!(key(&Message::new("t", "x")), None);
}

#[test]
fn names_that_readers_would_misunderstand_travel_as_extensions() {
    let message = Message::new("t", "{}")
        .header("ce_id", "forged")
        .header("Content-Type", "text/html")
        .header("posthaste_dlq_error", "forged");
    for format in [Format::Binary, Format::Structured] {
        let encoded = encode(&message, time(), format).unwrap();
        list(&encoded.headers);
        let received = back(&encoded).unwrap();
        assert_eq!(received.id, message.id.to_string());
        assert_eq!(received.content_type.as_deref(), Some("application/json"));
        assert_eq!(received.headers["ceid"], "forged");
        assert_eq!(received.headers["contenttype"], "text/html");
        assert_eq!(received.headers["posthastedlqerror"], "forged");
    }
}

#[test]
fn what_is_no_event_is_refused_by_the_name_of_what_is_wrong() {
    let refused = |pairs: &[(&str, &str)], payload: &[u8]| {
        decode(Some(headers(pairs).as_borrowed()), Some(payload))
            .unwrap_err()
            .to_string()
    };
    let structured = ("content-type", "application/cloudevents+json");
    assert!(matches!(decode(None, None), Err(DecodeError::NoPayload)));
    assert!(
        decode(None, Some(b"x"))
            .unwrap_err()
            .to_string()
            .starts_with("ce_id is missing")
    );
    assert!(refused(&[("ce_id", "")], b"x").starts_with("ce_id is missing"));
    assert!(refused(&[("ce_id", "1")], b"x").starts_with("ce_type is missing"));
    let bad_time = [("ce_id", "1"), ("ce_type", "t"), ("ce_time", "noon")];
    assert!(refused(&bad_time, b"x").starts_with(r#"ce_time = "noon""#));
    let old = [("ce_id", "1"), ("ce_type", "t"), ("ce_specversion", "0.2")];
    assert!(refused(&old, b"x").starts_with(r#"ce_specversion = "0.2""#));
    assert!(refused(&[("content-type", "application/cloudevents+avro")], b"x").contains("avro"));
    assert!(refused(&[("content-type", "application/cloudevents-batch+json")], b"[]").contains("batch"));
    assert!(refused(&[structured], b"x").contains("JSON event format"));
    assert!(refused(&[structured], br#"{"type": "t"}"#).starts_with("id is missing"));
    assert!(refused(&[structured], br#"{"id": "1", "type": "t", "data_base64": "?"}"#).starts_with("data_base64"));
    let binary_id = Header {
        key: "ce_id",
        value: Some(&[0xff_u8][..]),
    };
    let error = decode(Some(OwnedHeaders::new().insert(binary_id).as_borrowed()), Some(b"x")).unwrap_err();
    assert!(error.to_string().starts_with("ce_id = "), "{error}");
}

#[test]
fn headers_of_other_programs_do_not_hinder() {
    let mixed = headers(&[("ce_id", "1"), ("ce_type", "t"), ("ce_dataschema", "s")])
        .insert(Header {
            key: "raw",
            value: Some(&[0xff_u8][..]),
        })
        .insert(Header {
            key: "none",
            value: None::<&[u8]>,
        })
        .insert(Header {
            key: "ce_id",
            value: Some("2"),
        });
    let received = decode(Some(mixed.as_borrowed()), Some(b"")).unwrap();
    assert_eq!(received.id, "2", "the last of two counts");
    let expected: Vec<_> = received.headers.into_iter().collect();
    assert_eq!(expected, [("dataschema".to_owned(), "s".to_owned())]);
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 äß€/\"\\\\.-]{1,12}".prop_filter("not blank", |text| !text.trim().is_empty())
}

fn any_message() -> impl Strategy<Value = Message> {
    let names = (
        proptest::option::of(text()),
        proptest::option::of(text()),
        proptest::option::of(text()),
        proptest::option::of(text()),
        proptest::option::of(text()),
    );
    let bodies = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(|bytes| ("application/octet-stream", bytes)),
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(|bytes| ("application/json", bytes)),
        text().prop_map(|text| ("text/plain", text.into_bytes())),
        (any::<i64>(), text()).prop_map(|(n, text)| {
            let json = serde_json::json!({"n": n, "text": [text, null]});
            (
                "application/vnd.acme+json; charset=UTF-8",
                json.to_string().into_bytes(),
            )
        }),
    ];
    let headers = proptest::collection::btree_map("[a-zA-Z][a-zA-Z0-9_.-]{0,8}", "[ -~é]{0,12}", 0..4);
    (names, bodies, headers).prop_map(
        |((event_type, source, aggregate, key, tenant), (media_type, body), headers)| {
            let mut message = Message::new("t", body).content_type(media_type);
            message.event_type = event_type.map(Into::into);
            message.source = source.map(Into::into);
            message.aggregate_id = aggregate.map(Into::into);
            message.aggregate_type.clone_from(&message.aggregate_id);
            message.ordering_key = key.map(Into::into);
            message.tenant = tenant.map(Into::into);
            message.headers = headers;
            message
        },
    )
}

proptest! {
    #[test]
    fn what_was_enqueued_comes_out(message in any_message(), structured: bool) {
        prop_assume!(validate(&message, &Limits::default(), TypeNameRule::Any).is_ok());
        prop_assume!(!message.headers.keys().any(|name| is_taken(name)));
        let format = if structured { Format::Structured } else { Format::Binary };
        let received = back(&encode(&message, time(), format).unwrap()).unwrap();
        prop_assert_eq!(received.id, message.id.to_string());
        prop_assert_eq!(received.event_type, message.event_type.unwrap_or("t".into()));
        prop_assert_eq!(received.source.as_deref(), message.source.as_deref().or(Some("posthaste")));
        prop_assert_eq!(received.subject.as_deref(), message.aggregate_id.as_deref());
        prop_assert_eq!(received.aggregate_type.as_deref(), message.aggregate_type.as_deref());
        prop_assert_eq!(received.aggregate_id.as_deref(), message.aggregate_id.as_deref());
        prop_assert_eq!(received.ordering_key.as_deref(), message.ordering_key.as_deref());
        prop_assert_eq!(received.tenant.as_deref(), message.tenant.as_deref());
        prop_assert_eq!(received.time, Some(time()));
        prop_assert_eq!(received.content_type.as_deref(), Some(message.content_type.as_str()));
        prop_assert_eq!(received.headers, message.headers);
        prop_assert_eq!(received.payload, message.payload);
    }
}
