//! What a table may be for.

use std::cmp::Ordering;
use std::fmt;

use super::kind::Kind;
use super::role::Role;

/// One table of an outbox, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// The messages.
    Outbox,
    /// The dedupe keys of Posthaste's own outbox, which outlive its rows.
    Dedupe,
    /// What consumers have handled.
    Inbox,
    /// The relays that run.
    Relays,
    /// Which relay leads.
    Leaders,
    /// The migrations that were applied.
    Migrations,
    /// How far a log was read.
    Cursor,
    /// What of a log could not be delivered yet.
    Failed,
    /// What consumers of a log have handled.
    Handled,
    /// A copy of each message that died.
    DeadLetter,
    /// What the readers of a log's shards know, and who they are.
    ReaderState,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Outbox,
        Self::Dedupe,
        Self::Inbox,
        Self::Relays,
        Self::Leaders,
        Self::Migrations,
        Self::Cursor,
        Self::Failed,
        Self::Handled,
        Self::DeadLetter,
        Self::ReaderState,
    ];

    /// Its name in maps and statements.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Dedupe => "dedupe",
            Self::Inbox => "inbox",
            Self::Relays => "relays",
            Self::Leaders => "leaders",
            Self::Migrations => "migrations",
            Self::Cursor => "cursor",
            Self::Failed => "failed",
            Self::Handled => "handled",
            Self::DeadLetter => "dead_letter",
            Self::ReaderState => "reader_state",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// What Posthaste calls its own, without a prefix. It has no others.
    pub(super) const fn native_name(self) -> Option<&'static str> {
        match self {
            Self::Outbox => Some("outbox"),
            Self::Dedupe => Some("outbox_dedupe"),
            Self::Inbox => Some("inbox"),
            Self::Relays => Some("relays"),
            Self::Leaders => Some("leaders"),
            Self::Migrations => Some("schema_version"),
            Self::Cursor | Self::Failed | Self::Handled | Self::DeadLetter | Self::ReaderState => None,
        }
    }

    /// What Posthaste calls its own where the outbox is a log. The rest is shared with the queue of the same schema.
    pub(super) const fn native_log_name(self) -> Option<&'static str> {
        match self {
            Self::Outbox => Some("log"),
            Self::Failed => Some("log_failed"),
            Self::ReaderState => Some("log_shards"),
            _ => self.native_name(),
        }
    }

    /// The roles that a map may name columns of it for, if it stands beside an existing outbox.
    pub const fn side_roles(self) -> &'static [Role] {
        match self {
            Self::Cursor => &[Role::Id, Role::Position, Role::CreatedAt],
            Self::Failed => &[
                Role::Id,
                Role::EventId,
                Role::EventType,
                Role::Source,
                Role::AggregateType,
                Role::AggregateId,
                Role::OrderingKey,
                Role::Tenant,
                Role::Headers,
                Role::Payload,
                Role::Attempts,
                Role::LastError,
                Role::CreatedAt,
                Role::NextAttemptAt,
                Role::LogId,
                Role::Shard,
                Role::Topic,
                Role::ContentType,
                Role::DiedAt,
            ],
            Self::Handled => &[
                Role::Id,
                Role::AggregateType,
                Role::AggregateId,
                Role::Action,
                Role::CreatedAt,
            ],
            Self::DeadLetter => &[
                Role::Id,
                Role::EventId,
                Role::Topic,
                Role::OrderingKey,
                Role::Tenant,
                Role::EventType,
                Role::Source,
                Role::AggregateType,
                Role::AggregateId,
                Role::Payload,
                Role::Headers,
                Role::ContentHash,
                Role::Attempts,
                Role::LastError,
                Role::CreatedAt,
            ],
            Self::Outbox
            | Self::Dedupe
            | Self::Inbox
            | Self::Relays
            | Self::Leaders
            | Self::Migrations
            | Self::ReaderState => &[],
        }
    }

    /// Those that may stand beside an existing outbox.
    pub(super) fn sides() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|table| !table.side_roles().is_empty())
    }

    /// How a table beside the outbox mostly keeps a role: the database numbers its rows.
    pub(super) const fn usual_kind(role: Role) -> Kind {
        match role {
            Role::Id => Kind::Integer,
            _ => role.kind(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By name, so that what is listed does not depend on the order above.
impl Ord for Table {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for Table {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
