//! Events over HTTP as `CloudEvents`, signed as Standard Webhooks asks for, on a real receiver.

use std::collections::HashSet;
use std::time::Duration;

use axum::http::HeaderMap;
use posthaste_core::Message;
use posthaste_core::publisher::{ErrorKind, Outcome};
use posthaste_publishers::http::{HttpFormat, HttpOptions, HttpPublisher};
use serde_json::json;
use standardwebhooks::Webhook;

use crate::support::receiver::{Post, Receiver, Reply};
use crate::support::{message, publish};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";
const NEXT_SECRET: &str = "whsec_bmV4dG5leHRuZXh0bmV4dG5leHRuZXh0";

fn publisher(receiver: &Receiver, format: HttpFormat, change: impl FnOnce(&mut HttpOptions)) -> HttpPublisher {
    let mut options = receiver.options().format(format);
    change(&mut options);
    HttpPublisher::new(options).unwrap()
}

fn event() -> Message {
    Message::new("orders", r#"{"total":5}"#)
        .event_type("order.placed")
        .key("42")
        .aggregate("Order", "42")
        .header("note", "50 % \"off\" für alle")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map(|value| value.to_str().unwrap())
        .unwrap_or_default()
}

/// Proves C2.
#[tokio::test]
async fn in_binary_mode_attributes_are_headers_and_the_payload_is_the_body() {
    let receiver = Receiver::start([]).await;
    let event = event();
    let publisher = publisher(&receiver, HttpFormat::Binary, |_| {});
    assert_eq!(
        publish(&publisher, std::slice::from_ref(&event)).await,
        [Outcome::DELIVERED]
    );
    let post = receiver.posts().remove(0);
    assert_eq!(post.bytes, event.payload, "the bytes travel untouched");
    let id = event.id.to_string();
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", &*id),
        ("ce-type", "order.placed"),
        ("ce-subject", "42"),
        ("ce-partitionkey", "42"),
        ("ce-time", "1970-01-01T00:00:00.000000Z"),
        ("content-type", "application/json"),
        ("ce-note", "50%20%25%20%22off%22%20f%C3%BCr%20alle"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        assert_eq!(text(&post.headers, name), value, "{name}");
    }
    assert!(!post.headers.contains_key("ce-datacontenttype"));
    assert!(
        !post.headers.contains_key("webhook-signature"),
        "nothing is signed without a secret"
    );
}

/// Proves C2.
#[tokio::test]
async fn in_structured_mode_the_event_is_json() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver, HttpFormat::Structured, |_| {});
    publish(&publisher, &[event()]).await;
    let post = receiver.posts().remove(0);
    assert_eq!(
        text(&post.headers, "content-type"),
        "application/cloudevents+json; charset=UTF-8"
    );
    assert_eq!(post.body["data"], json!({"total": 5}));
    assert_eq!(post.body["note"], "50 % \"off\" für alle");
}

#[tokio::test]
async fn in_batch_mode_a_request_has_many_events_but_one_of_a_key_at_most() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver, HttpFormat::Batch, |options| options.batch.max_messages = 3);
    let messages = [
        message("a", "\"a1\""),
        message("a", "\"a2\""),
        message("", "\"1\""),
        message("b", "\"b1\""),
        message("", "\"2\""),
    ];
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 5]);
    let posts = receiver.posts();
    assert_eq!(
        text(&posts[0].headers, "content-type"),
        "application/cloudevents-batch+json; charset=UTF-8"
    );
    let data = |post: &Post| -> Vec<String> {
        let events = post.body.as_array().unwrap();
        events
            .iter()
            .map(|event| event["data"].as_str().unwrap().to_owned())
            .collect()
    };
    let requests: Vec<Vec<String>> = posts.iter().map(data).collect();
    assert!(requests.iter().all(|request| request.len() <= 3), "{requests:?}");
    let place = |payload: &str| {
        requests
            .iter()
            .position(|request| request.contains(&payload.to_owned()))
    };
    assert!(place("a1").unwrap() < place("a2").unwrap(), "{requests:?}");
    let all: HashSet<String> = requests.concat().into_iter().collect();
    assert_eq!(all.len(), 5, "{requests:?}");
}

#[tokio::test]
async fn of_a_batch_that_is_refused_only_the_event_at_fault_is_given_up() {
    let receiver = Receiver::start([]).await;
    receiver.refuse_bodies_with("poison");
    let publisher = publisher(&receiver, HttpFormat::Batch, |options| {
        options.concurrency = Some(1);
    });
    let mut messages: Vec<Message> = (0..20).map(|n| message(&n.to_string(), "\"fine\"")).collect();
    messages[13] = message("13", "\"poison\"");
    messages.push(message("13", "\"behind\""));
    let outcomes = publish(&publisher, &messages).await;
    for (place, outcome) in outcomes.iter().enumerate() {
        match (place, outcome) {
            (13, Outcome::Failed(error)) => assert_eq!(error.kind, ErrorKind::Permanent),
            (20, outcome) => assert_eq!(*outcome, Outcome::NotAttempted, "it stays behind the failed one"),
            (_, outcome) => assert_eq!(*outcome, Outcome::DELIVERED, "{place}"),
        }
    }
    assert!(
        receiver.posts().len() <= 12,
        "halves, not one by one: {}",
        receiver.posts().len()
    );
}

/// A receiver that drops what it has already by `webhook-id` must not drop another batch with the same first event.
#[tokio::test]
async fn batches_that_differ_have_different_ids_and_equal_ones_the_same() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver, HttpFormat::Batch, |options| {
        options.signing_secrets = vec![SECRET.into()];
    });
    let [first, second, third] = ["\"1\"", "\"2\"", "\"3\""].map(|payload| message("", payload));
    for batch in [[&first, &second], [&first, &third], [&first, &second]] {
        publish(&publisher, &batch.map(Clone::clone)).await;
    }
    let ids: Vec<String> = receiver
        .posts()
        .iter()
        .map(|post| text(&post.headers, "webhook-id").to_owned())
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
}

#[tokio::test]
async fn while_a_secret_is_replaced_receivers_with_either_of_them_accept_the_signature() {
    let receiver = Receiver::start([]).await;
    for format in [
        HttpFormat::Binary,
        HttpFormat::Structured,
        HttpFormat::Batch,
        HttpFormat::Discord,
    ] {
        let publisher = publisher(&receiver, format, |options| {
            options.signing_secrets = vec![NEXT_SECRET.into(), SECRET.into()];
        });
        publish(&publisher, &[event()]).await;
    }
    let posts = receiver.posts();
    assert_eq!(posts.len(), 4);
    for post in posts {
        for secret in [SECRET, NEXT_SECRET] {
            Webhook::new(secret)
                .unwrap()
                .verify(&post.bytes, &post.headers)
                .unwrap();
        }
        let other = Webhook::new("whsec_b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90").unwrap();
        assert!(other.verify(&post.bytes, &post.headers).is_err());
        let mut changed = post.bytes.to_vec();
        changed.push(b' ');
        assert!(Webhook::new(SECRET).unwrap().verify(&changed, &post.headers).is_err());
    }
}

#[tokio::test]
async fn headers_of_the_settings_are_sent_with_what_the_event_says() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver, HttpFormat::Binary, |options| {
        options.headers.insert("Idempotency-Key".to_owned(), "{id}".into());
        options.bearer_token = Some("t0ken".into());
    });
    let event = event();
    publish(&publisher, std::slice::from_ref(&event)).await;
    let headers = receiver.posts().remove(0).headers;
    assert_eq!(text(&headers, "idempotency-key"), event.id.to_string());
    assert_eq!(text(&headers, "authorization"), "Bearer t0ken");
}

#[tokio::test]
async fn retry_after_is_a_pause_and_costs_no_attempt() {
    for status in [429, 503] {
        let receiver = Receiver::start([Reply::RetryAfter(status, 1)]).await;
        let publisher = publisher(&receiver, HttpFormat::Binary, |_| {});
        let began = std::time::Instant::now();
        let outcomes = publish(&publisher, &[message("a", "1")]).await;
        assert_eq!(outcomes, [Outcome::DELIVERED], "{status}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{status}");
    }
}

/// The receiver may have a fault of its own, such as a certificate that it does not like any more.
#[tokio::test]
async fn of_a_receiver_that_refuses_everything_few_events_die() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver, HttpFormat::Binary, |_| {});
    let kinds = async |count: usize| {
        let mut kinds = Vec::new();
        for _ in 0..count {
            match &publish(&publisher, &[event()]).await[0] {
                Outcome::Failed(error) => kinds.push(error.kind),
                other => panic!("{other:?}"),
            }
        }
        kinds
    };
    receiver.otherwise(Some(Reply::Status(400)));
    assert_eq!(kinds(10).await, [ErrorKind::Permanent; 10]);
    assert_eq!(kinds(3).await, [ErrorKind::Transient; 3]);
    receiver.otherwise(None);
    assert_eq!(publish(&publisher, &[event()]).await, [Outcome::DELIVERED]);
    receiver.otherwise(Some(Reply::Status(400)));
    assert_eq!(kinds(1).await, [ErrorKind::Permanent]);
}

#[tokio::test]
async fn an_empty_payload_has_a_length() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver, HttpFormat::Binary, |_| {});
    assert_eq!(
        publish(&publisher, &[Message::new("t", "")]).await,
        [Outcome::DELIVERED]
    );
    assert_eq!(text(&receiver.posts()[0].headers, "content-length"), "0");
}

/// What was taken is delivered, however late the rest of the answer comes.
#[tokio::test]
async fn an_answer_counts_from_its_head() {
    let receiver = Receiver::start([Reply::Unfinished]).await;
    let publisher = publisher(&receiver, HttpFormat::Binary, |options| {
        options.answer_within = Some(Duration::from_secs(4));
    });
    let start = std::time::Instant::now();
    assert_eq!(publish(&publisher, &[event()]).await, [Outcome::DELIVERED]);
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
}

#[test]
fn what_cannot_work_is_refused_by_field_and_secrets_are_not_shown() {
    type Change = fn(&mut HttpOptions);
    let cases: [(Change, &str); 13] = [
        (|to| to.concurrency = Some(0), "concurrency = 0: must be 1 to 1000"),
        (
            |to| to.answer_within = Some(Duration::ZERO),
            "answer_within = 0s: must be above 0",
        ),
        (
            |to| to.batch.max_messages = 0,
            "batch.max_messages = 0: must be above 0",
        ),
        (
            |to| to.batch.max_messages = 7,
            "batch = { … }: is for format = \"batch\"",
        ),
        (
            |to| to.discord.title = "x".to_owned(),
            "discord = { … }: is for format = \"discord\"",
        ),
        (
            |to| to.signing_secrets = vec![SECRET.into(), "hush".into()],
            "signing_secrets.1 = ***: must be `whsec_`",
        ),
        (
            |to| drop(to.headers.insert("ce-id".to_owned(), "hush".into())),
            "headers.ce-id = ***: is set by the publisher itself",
        ),
        (
            |to| {
                to.signing_secrets = vec![SECRET.into()];
                to.headers.insert("Webhook-Id".to_owned(), "hush".into());
            },
            "headers.Webhook-Id = ***: is part of the signature",
        ),
        (
            |to| {
                to.headers.insert("X-A".to_owned(), "hush".into());
                to.headers.insert("x-a".to_owned(), "hush".into());
            },
            "headers.x-a = ***: is given twice",
        ),
        (
            |to| drop(to.headers.insert("x".to_owned(), "{colour}".into())),
            "headers.x = ***: `{colour}` is not known",
        ),
        (
            |to| {
                to.format = HttpFormat::Batch;
                to.headers.insert("idempotency-key".to_owned(), "{id}".into());
            },
            "headers.idempotency-key = ***: a batch has many events",
        ),
        (
            |to| to.tls.cert_file = Some("cert.pem".into()),
            "tls.cert_file = cert.pem: needs tls.key_file as well",
        ),
        (
            |to| to.url = "https://ann:hush@example.com/x".parse().unwrap(),
            "url = https://example.com/***: holds a user's name",
        ),
    ];
    let options = HttpOptions::new("https://example.com/x".parse().unwrap());
    assert!(HttpPublisher::new(options.clone()).is_ok());
    for (change, expected) in cases {
        let mut wrong = options.clone();
        change(&mut wrong);
        assert!(!format!("{wrong:?}").contains("hush"), "{wrong:?}");
        let text = HttpPublisher::new(wrong).unwrap_err().to_string();
        assert!(text.starts_with(expected) && !text.contains("hush"), "{text}");
    }
}
