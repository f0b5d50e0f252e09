//! The HTTP binding of `CloudEvents` 1.0.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use posthaste_core::envelope::Envelope;
use posthaste_core::publisher::{Delivery, PublishError};

use super::content::Content;

/// What the binding has encoded in header values, besides all that is not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Carried under their own names as well, because that is where tracing looks for them.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

/// Attributes as headers, the payload as it is.
pub(super) fn binary(delivery: &Delivery) -> Result<Content, PublishError> {
    let message = &delivery.message;
    let mut headers = HeaderMap::new();
    for (name, value) in Envelope::of(delivery).attributes() {
        let (name, value) = match &*name {
            "datacontenttype" => (CONTENT_TYPE, HeaderValue::from_str(&value).ok()),
            name => {
                let encoded = utf8_percent_encode(&value, ENCODED).to_string();
                let header = HeaderName::from_bytes(format!("ce-{name}").as_bytes());
                (header.map_err(|_| unfit(name))?, HeaderValue::from_str(&encoded).ok())
            }
        };
        let value = value.ok_or_else(|| unfit(name.as_str()))?;
        headers.insert(name, value);
    }
    for name in TRACE_CONTEXT {
        if let Some(value) = message
            .headers
            .get(name)
            .and_then(|value| HeaderValue::from_str(value).ok())
        {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    Ok(Content {
        headers,
        body: message.payload.clone(),
    })
}

/// The event as JSON.
pub(super) fn structured(delivery: &Delivery) -> Result<Content, PublishError> {
    Ok(json("application/cloudevents+json; charset=UTF-8", event(delivery)?))
}

/// The events as a JSON array.
pub(super) fn batch(deliveries: &[&Delivery]) -> Result<Content, PublishError> {
    let events: Vec<String> = deliveries
        .iter()
        .map(|delivery| event(delivery))
        .collect::<Result<_, _>>()?;
    let body = format!("[{}]", events.join(","));
    Ok(json("application/cloudevents-batch+json; charset=UTF-8", body))
}

fn json(media_type: &'static str, body: String) -> Content {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    Content {
        headers,
        body: Bytes::from(body),
    }
}

fn event(delivery: &Delivery) -> Result<String, PublishError> {
    let written = Envelope::of(delivery).to_json();
    written.map_err(|error| {
        PublishError::permanent(format!("the message cannot be written as JSON: {error}")).caused_by(error)
    })
}

fn unfit(attribute: &str) -> PublishError {
    PublishError::permanent(format!(
        "HTTP: the attribute {attribute} has a value that no header can carry; use format = \"structured\""
    ))
}
