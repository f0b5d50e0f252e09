//! What a column may be for.

use super::kind::Kind;

/// One role that a column may play, by the name that statements and maps use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name. Posthaste's own table has a column of the same name for each that it has.
    pub name: &'static str,
    /// How its column keeps values unless the map says otherwise.
    pub kind: Kind,
    /// The other kinds it may have.
    pub others: &'static [Kind],
    /// What it is for.
    pub about: &'static str,
}

const TIMES: &[Kind] = &[Kind::Timestamp, Kind::EpochS, Kind::EpochMs, Kind::EpochUs];
const IDS: &[Kind] = &[Kind::UuidBytes, Kind::Integer, Kind::Text];
const NAMES: &[Kind] = &[Kind::Uuid, Kind::UuidBytes, Kind::Integer];

const fn role(name: &'static str, kind: Kind, others: &'static [Kind], about: &'static str) -> Role {
    Role {
        name,
        kind,
        others,
        about,
    }
}

/// All roles of an outbox table.
pub const ROLES: [Role; 29] = [
    role("id", Kind::Uuid, IDS, "the primary key"),
    role(
        "event_id",
        Kind::Text,
        NAMES,
        "what the event is published under, if not the primary key",
    ),
    role(
        "seq",
        Kind::Integer,
        &[],
        "a number that the database gives in the order of inserts",
    ),
    role(
        "namespace",
        Kind::Text,
        NAMES,
        "whose outbox it is within a shared table",
    ),
    role("topic", Kind::Text, &[], "where the message goes"),
    role(
        "ordering_key",
        Kind::Text,
        NAMES,
        "messages with equal keys are delivered in order",
    ),
    role("tenant", Kind::Text, NAMES, "for routing and filtering"),
    role(
        "dedupe_key",
        Kind::Text,
        NAMES,
        "a second enqueue with the same key writes nothing",
    ),
    role("event_type", Kind::Text, &[], "the name of what happened"),
    role("source", Kind::Text, &[], "the service that speaks"),
    role(
        "aggregate_type",
        Kind::Text,
        &[],
        "the kind of thing the event is about",
    ),
    role("aggregate_id", Kind::Text, NAMES, "which one of them"),
    role("content_type", Kind::Text, &[], "the payload's media type"),
    role(
        "payload",
        Kind::Bytes,
        &[Kind::Text, Kind::Json, Kind::Jsonb],
        "the body",
    ),
    role(
        "headers",
        Kind::Jsonb,
        &[Kind::Json, Kind::Text],
        "a JSON object of names and texts",
    ),
    role(
        "content_hash",
        Kind::Bytes,
        &[Kind::Text],
        "the hash made at enqueue; text holds hexadecimal digits",
    ),
    role(
        "status",
        Kind::Text,
        &[Kind::Integer, Kind::Boolean],
        "where the row stands",
    ),
    role("attempts", Kind::Integer, &[], "how often it was tried"),
    role("max_attempts", Kind::Integer, &[], "how often this row may be tried"),
    role("next_attempt_at", Kind::Timestamptz, TIMES, "not to be tried earlier"),
    role("locked_by", Kind::Uuid, &[Kind::Text], "who has it"),
    role("lease_token", Kind::Uuid, &[Kind::Text], "the proof of one claim"),
    role("locked_until", Kind::Timestamptz, TIMES, "when the claim is over"),
    role("locked_at", Kind::Timestamptz, TIMES, "when it was claimed"),
    role("last_error", Kind::Text, &[], "the last failure"),
    role("created_at", Kind::Timestamptz, TIMES, "when it was enqueued"),
    role("updated_at", Kind::Timestamptz, TIMES, "when it last changed"),
    role("delivered_at", Kind::Timestamptz, TIMES, "when it was delivered"),
    role("version", Kind::Integer, &[], "goes up with every change"),
];

/// The role of this name.
pub fn find(name: &str) -> Option<&'static Role> {
    ROLES.iter().find(|role| role.name == name)
}
