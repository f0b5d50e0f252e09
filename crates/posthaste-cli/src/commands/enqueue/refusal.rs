//! Why a message was refused, in the words of the command line: the flag and the setting.

use posthaste_core::validate::InvalidMessage;

/// For a message that was given by flags.
pub(super) fn of_flags(reason: &InvalidMessage) -> String {
    match field(reason).and_then(flag) {
        Some(flag) => format!("{flag}: {}", text(reason)),
        None => text(reason),
    }
}

/// For a line of JSON, whose fields have the names that the reason uses.
pub(super) fn of_fields(reason: &InvalidMessage) -> String {
    match reason {
        InvalidMessage::TooLong { field, .. } => format!("{field}: {}", text(reason)),
        _ => text(reason),
    }
}

fn text(reason: &InvalidMessage) -> String {
    match reason {
        InvalidMessage::TooLong { field, actual, limit } => {
            let remedy = match *field {
                "payload" => format!("shorten it, or set outbox.limits.payload_bytes = {actual} or more"),
                "headers" => format!("shorten them, or set outbox.limits.header_bytes = {actual} or more"),
                _ => "shorten it".to_owned(),
            };
            format!("{actual} bytes are more than the {limit} that are allowed; {remedy}")
        }
        InvalidMessage::TypeName(_) => {
            format!("{reason}; for names of another convention set outbox.type_names = \"any\"")
        }
        _ => reason.to_string(),
    }
}

fn field(reason: &InvalidMessage) -> Option<&'static str> {
    match reason {
        InvalidMessage::Empty { field }
        | InvalidMessage::TooLong { field, .. }
        | InvalidMessage::Nul { field }
        | InvalidMessage::Table { field, .. } => Some(field),
        InvalidMessage::ForeignDedupeKey { .. } => Some("dedupe_key"),
        InvalidMessage::TypeName(_) => Some("event_type"),
        InvalidMessage::Header { .. } => Some("headers"),
        _ => None,
    }
}

fn flag(field: &str) -> Option<&'static str> {
    Some(match field {
        "topic" => "--topic",
        "payload" => "--payload",
        "ordering_key" => "--key",
        "event_type" => "--type",
        "tenant" => "--tenant",
        "dedupe_key" => "--dedupe-key",
        "headers" => "--header",
        "aggregate_type" | "aggregate_id" => "--aggregate",
        "source" => "--source",
        "namespace" => "--namespace",
        "not_before" => "--not-before",
        "content_type" => "--content-type",
        _ => return None,
    })
}
