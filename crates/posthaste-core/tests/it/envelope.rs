//! The envelope against the `CloudEvents` specification: its own JSON example, and the SDK as an independent reader.

use chrono::{DateTime, Utc};
use cloudevents::{AttributesReader, Data, Event};
use posthaste_core::Message;
use posthaste_core::envelope::Envelope;
use proptest::prelude::*;

fn time() -> DateTime<Utc> {
    "2018-04-05T17:31:00Z".parse().unwrap()
}

fn read_back(message: &Message) -> Event {
    serde_json::from_str(&Envelope::new(message, time()).to_json().unwrap()).unwrap()
}

/// Proves C2. The values are those of the example in the JSON event format, section 3.2.
#[test]
fn the_specifications_example_comes_out_member_for_member() {
    let mut message = Message::new("t", r#"{"appinfoA":"abc","appinfoB":123,"appinfoC":true}"#)
        .event_type("com.example.someevent.v1")
        .source("/mycontext")
        .header("comexampleextension1", "value");
    message.aggregate_id = Some("larger-context".into());
    let json: serde_json::Value = serde_json::from_str(&Envelope::new(&message, time()).to_json().unwrap()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "specversion": "1.0",
            "type": "com.example.someevent.v1",
            "source": "/mycontext",
            "subject": "larger-context",
            "id": message.id.to_string(),
            "time": "2018-04-05T17:31:00.000000Z",
            "comexampleextension1": "value",
            "aggregateid": "larger-context",
            "datacontenttype": "application/json",
            "data": {"appinfoA": "abc", "appinfoB": 123, "appinfoC": true}
        })
    );
}

/// Proves C2.
#[test]
fn the_sdk_reads_every_field_of_the_envelope() {
    let message = Message::json("order-events", &serde_json::json!({"orderId": 42}))
        .unwrap()
        .event_type("acme.order.created.v1")
        .source("shop")
        .aggregate("Order", "42")
        .key("42")
        .tenant("t1")
        .header("X-Request-Id", "r-7");
    let event = read_back(&message);
    assert_eq!(event.id(), message.id.to_string());
    assert_eq!((event.ty(), event.source().as_str()), ("acme.order.created.v1", "shop"));
    assert_eq!(
        (event.subject(), event.datacontenttype()),
        (Some("42"), Some("application/json"))
    );
    assert_eq!(event.time(), Some(&time()));
    for (name, value) in [
        ("partitionkey", "42"),
        ("aggregatetype", "Order"),
        ("aggregateid", "42"),
        ("tenant", "t1"),
        ("xrequestid", "r-7"),
    ] {
        assert_eq!(
            event.extension(name).map(ToString::to_string).as_deref(),
            Some(value),
            "{name}"
        );
    }
    assert_eq!(event.data(), Some(&Data::Json(serde_json::json!({"orderId": 42}))));
}

#[test]
fn json_payloads_keep_their_bytes_and_stay_on_one_line() {
    let exact = r#"{"b": 1.10, "a":12345678901234567890123, "b": 2}"#;
    let line = Envelope::new(&Message::new("t", exact), time()).to_json().unwrap();
    assert!(line.ends_with(&format!(r#""data":{exact}}}"#)), "{line}");
    let broken = Envelope::new(&Message::new("t", "{\n  \"a\": 1\r\n}"), time())
        .to_json()
        .unwrap();
    assert!(!broken.contains(['\n', '\r']), "{broken}");
}

#[test]
fn bytes_that_are_not_what_they_claim_travel_as_base64() {
    let event = read_back(&Message::new("t", "not json"));
    assert_eq!(event.data(), Some(&Data::Binary(b"not json".to_vec())));
    let text = read_back(&Message::new("t", "plain").content_type("text/plain"));
    assert_eq!(text.data(), Some(&Data::String("plain".into())));
}

proptest! {
    /// Proves C2.
    #[test]
    fn any_bytes_survive_the_envelope(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let message = Message::new("t", payload.clone()).content_type("application/octet-stream");
        let event = read_back(&message);
        prop_assert_eq!(event.data(), Some(&Data::Binary(payload)));
    }
}

/// Proves A9. An application that writes its rows itself may have any headers in them.
#[test]
fn headers_never_stand_for_attributes_of_the_event() {
    let message = Message::json("orders", &serde_json::json!({}))
        .unwrap()
        .event_type("acme.order.created.v1")
        .header("id", "42")
        .header("Type", "t")
        .header("data-base64", "AA==")
        .header("Spec_Version", "9")
        .header("x-req", "kept")
        .header("xreq", "second");
    let envelope = Envelope::new(&message, time());
    let json = envelope.to_json().unwrap();
    assert_eq!(json.matches("\"id\":").count(), 1, "{json}");
    assert_eq!(json.matches("\"type\":").count(), 1, "{json}");
    let event = read_back(&message);
    assert_eq!(
        (event.id(), event.ty()),
        (message.id.to_string().as_str(), "acme.order.created.v1")
    );
    assert_eq!(
        event.extension("xreq").map(ToString::to_string).as_deref(),
        Some("kept")
    );
    assert_eq!(
        envelope.left_out(),
        ["Spec_Version", "Type", "data-base64", "id", "xreq"]
    );
}
