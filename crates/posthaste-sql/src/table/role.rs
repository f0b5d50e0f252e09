//! What a column may be for.

use std::cmp::Ordering;
use std::fmt;

use super::kind::Kind;

const TIMES: &[Kind] = &[Kind::Timestamp, Kind::EpochS, Kind::EpochMs, Kind::EpochUs];
const IDS: &[Kind] = &[Kind::UuidBytes, Kind::Integer, Kind::Text];
const NAMES: &[Kind] = &[Kind::Uuid, Kind::UuidBytes, Kind::Integer];
const BODIES: &[Kind] = &[Kind::Text, Kind::Json, Kind::Jsonb];
const OBJECTS: &[Kind] = &[Kind::Json, Kind::Text];
const HASHES: &[Kind] = &[Kind::Text];
const STATES: &[Kind] = &[Kind::Integer, Kind::Boolean];
const TOKENS: &[Kind] = &[Kind::Text];
const NONE: &[Kind] = &[];

macro_rules! roles {
    ($($list:ident { $($role:ident = $name:literal, $kind:ident, $others:ident, $about:literal;)* })*) => {
        /// One role that a column may play.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Role {
            $($(#[doc = concat!("`", $name, "`: ", $about, ".")] $role,)*)*
        }

        impl Role {
            $(const $list: &[Self] = &[$(Self::$role),*];)*

            /// Its name in maps and statements. Posthaste's own table has a column of the same name for each that it has.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$role => $name,)*)* }
            }

            /// How its column keeps values unless the map says otherwise.
            pub const fn kind(self) -> Kind {
                match self { $($(Self::$role => Kind::$kind,)*)* }
            }

            /// The other kinds it may have.
            pub const fn others(self) -> &'static [Kind] {
                match self { $($(Self::$role => $others,)*)* }
            }

            /// What it is for.
            pub const fn about(self) -> &'static str {
                match self { $($(Self::$role => $about,)*)* }
            }
        }
    };
}

roles! {
    OF_OUTBOX {
        Id = "id", Uuid, IDS, "the primary key";
        EventId = "event_id", Text, NAMES, "what the event is published under, if not the primary key";
        Seq = "seq", Integer, NONE, "a number that the database gives in the order of inserts";
        Namespace = "namespace", Text, NAMES, "whose outbox it is within a shared table";
        Topic = "topic", Text, NONE, "where the message goes";
        OrderingKey = "ordering_key", Text, NAMES, "messages with equal keys are delivered in order";
        Tenant = "tenant", Text, NAMES, "for routing and filtering";
        DedupeKey = "dedupe_key", Text, NAMES, "a second enqueue with the same key writes nothing";
        EventType = "event_type", Text, NONE, "the name of what happened";
        Source = "source", Text, NONE, "the service that speaks";
        AggregateType = "aggregate_type", Text, NONE, "the kind of thing the event is about";
        AggregateId = "aggregate_id", Text, NAMES, "which one of them";
        ContentType = "content_type", Text, NONE, "the payload's media type";
        Payload = "payload", Bytes, BODIES, "the body";
        Headers = "headers", Jsonb, OBJECTS, "a JSON object of names and texts";
        ContentHash = "content_hash", Bytes, HASHES, "the hash made at enqueue; text holds hexadecimal digits";
        Status = "status", Text, STATES, "where the row stands";
        Attempts = "attempts", Integer, NONE, "how often it was tried";
        MaxAttempts = "max_attempts", Integer, NONE, "how often this row may be tried";
        NextAttemptAt = "next_attempt_at", Timestamptz, TIMES, "not to be tried earlier";
        LockedBy = "locked_by", Uuid, TOKENS, "who has it";
        LeaseToken = "lease_token", Uuid, TOKENS, "the proof of one claim";
        LockedUntil = "locked_until", Timestamptz, TIMES, "when the claim is over";
        LockedAt = "locked_at", Timestamptz, TIMES, "when it was claimed";
        LastError = "last_error", Text, NONE, "the last failure";
        CreatedAt = "created_at", Timestamptz, TIMES, "when it was enqueued";
        UpdatedAt = "updated_at", Timestamptz, TIMES, "when it last changed";
        DeliveredAt = "delivered_at", Timestamptz, TIMES, "when it was delivered";
        Version = "version", Integer, NONE, "goes up with every change";
    }
    OF_OTHERS {
        Position = "position", Integer, NONE, "how far a log was read";
        LogId = "log_id", Integer, NONE, "the id of the row in the log";
        Action = "action", Text, NONE, "what a consumer did";
        Shard = "shard", Integer, NONE, "in which of a log's shards a row is";
        DiedAt = "died_at", Timestamptz, TIMES, "when it was given up, nothing if it was not";
    }
}

impl Role {
    /// The roles that a message has texts for, in the order in which statements take them.
    pub const TEXTS: [Self; 11] = [
        Self::EventId,
        Self::Namespace,
        Self::Topic,
        Self::OrderingKey,
        Self::Tenant,
        Self::DedupeKey,
        Self::EventType,
        Self::Source,
        Self::AggregateType,
        Self::AggregateId,
        Self::ContentType,
    ];

    /// All roles of an outbox table.
    pub const fn of_outbox() -> &'static [Self] {
        Self::OF_OUTBOX
    }

    /// The role of an outbox table that has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::OF_OUTBOX.iter().copied().find(|role| role.name() == name)
    }

    /// The role that a column of the outbox has under this name in statements: maps do not name shards.
    pub(crate) fn in_statements(name: &str) -> Option<Self> {
        Self::named(name).or_else(|| (name == Self::Shard.name()).then_some(Self::Shard))
    }

    /// The role of this name, also if only tables beside the outbox have it.
    pub(crate) fn of_any_table(name: &str) -> Option<Self> {
        let mut all = Self::OF_OUTBOX.iter().chain(Self::OF_OTHERS).copied();
        all.find(|role| role.name() == name)
    }

    /// Whether its column may be of this kind.
    pub fn suits(self, kind: Kind) -> bool {
        kind == self.kind() || self.others().contains(&kind)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By name: that is the order of columns in statements.
impl Ord for Role {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for Role {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
