//! What the table under test has, and what a conformance case needs of it.

use std::fmt;

use posthaste_sql::TableMap;
use posthaste_sql::table::{Counts, Kind, Property, Role, Strategy, Table as Purpose};

use crate::suite::Case;

macro_rules! needs {
    ($($(#[doc = $about:literal])+ $need:ident,)*) => {
        /// Something that a conformance case needs of the table and the database it runs on. A case that needs what is not
        /// there is not for that table; [`suite::left_out`](crate::suite::left_out) lists those.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Need {
            $($(#[doc = $about])+ $need,)*
        }

        impl Need {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$need),*];
        }
    };
}

needs! {
    /// A table in which consumers record what they handled.
    Inbox,
    /// Tables in which relays are listed and agree on a leader.
    Registry,
    /// A table that keeps dedupe keys beyond their rows.
    DedupeWindow,
    /// A column for dedupe keys.
    DedupeKey,
    /// A column for namespaces.
    Namespace,
    /// A column for topics, so that any may be chosen.
    Topic,
    /// A column for tenants that takes any text.
    Tenant,
    /// A column for ordering keys.
    Key,
    /// One that takes any text, and rows without a key.
    TextKey,
    /// A relay that serves some topics or a tenant, and leaves the rest to others.
    Parts,
    /// A number for each row, in the order of inserts.
    Sequence,
    /// One that a row still has when it is tried again, though it were kept in another table by then.
    LastingSequence,
    /// A column for every part of a message, each taking any text.
    EveryField,
    /// A payload of any bytes, kept as they are.
    AnyBytes,
    /// A column for the hash of the content.
    Hash,
    /// Ids that the producer gives.
    GivenIds,
    /// Rows under a lease, rather than locked by the transaction that publishes them.
    Leases,
    /// Rows that are locked by that transaction, and have no lease.
    Locks,
    /// Leases that say when they are over, so that a claim takes them back.
    Expiry,
    /// Leases that stand in their rows, so that all can see them, and that a claim took one back.
    WrittenLeases,
    /// A row that says which worker has it, and not the proof of its claim alone.
    LockedBy,
    /// A count of attempts.
    Attempts,
    /// One that the claim itself counts up, the first attempt included.
    CountedClaims,
    /// Attempts that the relay limits, and no row by itself.
    RelayLimit,
    /// A column for errors that takes only so many characters.
    ShortErrors,
    /// A table for copies of what died.
    DeadLetters,
    /// A column for the time of the next attempt.
    Schedule,
    /// One that a row has from the start, so that a message may wait for a time of its own.
    NotBefore,
    /// A column for the time of the last change.
    UpdatedAt,
    /// A column for the time of the delivery.
    DeliveredAt,
    /// Times with fractions of a second.
    FineTimes,
    /// That what is due at once is due since it was written, to the fraction of a second.
    ExactStart,
    /// A row for each message that says where it stands, rather than a log with a cursor.
    Queue,
    /// Rows that others write as well, with what Posthaste would not write.
    Mapped,
    /// Transactions that write at the same time.
    ConcurrentWriters,
    /// Claims that run at the same time, each skipping what others hold.
    ConcurrentClaims,
    /// Rows that an operator may lock.
    RowLock,
    /// A table that an operator may lock, without anybody who waits for long.
    TableLock,
    /// That the case is worth its time here. It waits for seconds of the real clock, and is about the engine and the way
    /// in which rows are claimed rather than about columns: one table for each way and database is enough.
    Engine,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the table under test has, and what its database can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    has: Vec<Need>,
    except: Vec<(&'static str, &'static str)>,
}

impl Table {
    fn with(has: Vec<Need>) -> Self {
        let except = Vec::new();
        Self { has, except }
    }

    /// Posthaste's own table, on a database that can do everything.
    pub fn complete() -> Self {
        let complete =
            |need: &Need| !matches!(need, Need::Mapped | Need::Locks | Need::ShortErrors | Need::DeadLetters);
        Self::with(Need::ALL.iter().copied().filter(complete).collect())
    }

    /// What a map says about its table, on a database that can do everything.
    pub fn of(map: &TableMap) -> Self {
        Self::with(Need::ALL.iter().copied().filter(|need| has(map, *need)).collect())
    }

    /// The same without these.
    #[must_use]
    pub fn without(mut self, needs: &[Need]) -> Self {
        self.has.retain(|need| !needs.contains(need));
        self
    }

    /// The same for a case that should hold and does not, with the reason.
    #[must_use]
    pub fn except(mut self, cases: &[(&'static str, &'static str)]) -> Self {
        self.except.extend(cases);
        self
    }

    /// Why a case is not for it, if it is not.
    pub(crate) fn refuses(&self, case: &Case) -> Option<String> {
        if let Some((_, reason)) = self.except.iter().find(|(name, _)| *name == case.name) {
            return Some(format!("KNOWN DIFFERENCE: {reason}"));
        }
        let lacks = |need: &&Need| !self.has.contains(need);
        let lacking: Vec<_> = case.needs.iter().filter(lacks).map(ToString::to_string).collect();
        (!lacking.is_empty()).then(|| format!("needs {}", lacking.join(", ")))
    }
}

fn has(map: &TableMap, need: Need) -> bool {
    let kind = |role: Role| map.column(role).map(|column| column.kind);
    let text = |role: Role| kind(role) == Some(Kind::Text);
    let strategy = map.strategy();
    match need {
        Need::Inbox => map.has(Purpose::Inbox),
        Need::Registry => map.has(Purpose::Relays) && map.has(Purpose::Leaders),
        Need::DedupeWindow => map.has(Purpose::Dedupe),
        // A log keeps them apart only.
        Need::DedupeKey => text(Role::DedupeKey) || (strategy == Strategy::Log && map.has(Purpose::Dedupe)),
        Need::Namespace => text(Role::Namespace),
        Need::Topic => map.has(Role::Topic),
        Need::Tenant => text(Role::Tenant),
        Need::Key => map.has(Role::OrderingKey),
        Need::TextKey => text(Role::OrderingKey) && !shares_its_column(map, Role::OrderingKey),
        Need::Sequence => map.has(Role::Seq) || strategy == Strategy::Log,
        Need::LastingSequence => map.has(Role::Seq) || map.has((Purpose::Failed, Role::LogId)),
        Need::EveryField => {
            let texts = [
                Role::Namespace,
                Role::Topic,
                Role::OrderingKey,
                Role::Tenant,
                Role::DedupeKey,
                Role::EventType,
                Role::Source,
                Role::AggregateType,
                Role::AggregateId,
                Role::ContentType,
            ];
            texts
                .into_iter()
                .all(|role| text(role) && !shares_its_column(map, role))
                && map.has(Role::Headers)
        }
        Need::AnyBytes => kind(Role::Payload) == Some(Kind::Bytes),
        Need::Hash => map.has(Role::ContentHash),
        Need::GivenIds => !map.has(Property::GeneratedId),
        Need::Leases => strategy != Strategy::RowLocks,
        Need::Locks => strategy == Strategy::RowLocks,
        Need::Expiry => map.has(Role::LockedUntil) || strategy == Strategy::Log,
        Need::WrittenLeases => map.has(Role::LockedUntil),
        Need::LockedBy => map.has(Role::LockedBy) || text(Role::LeaseToken),
        Need::Attempts => map.has(Role::Attempts) || map.has((Purpose::Failed, Role::Attempts)),
        Need::CountedClaims => {
            map.has(Role::Attempts) && map.has(Role::LockedUntil) && map.counts() == Counts::Attempts
        }
        Need::ShortErrors => map.column(Role::LastError).is_some_and(|column| column.max.is_some()),
        Need::DeadLetters => map.has(Purpose::DeadLetter),
        Need::Schedule => map.has(Role::NextAttemptAt) || map.has((Purpose::Failed, Role::NextAttemptAt)),
        Need::NotBefore => map.has(Role::NextAttemptAt) || map.has(Role::Shard),
        Need::UpdatedAt => map.has(Role::UpdatedAt),
        Need::DeliveredAt => map.has(Role::DeliveredAt),
        Need::FineTimes => !map.columns().any(|(_, column)| column.kind == Kind::EpochS),
        // There is one position for all of a log.
        Need::Queue | Need::Parts => strategy != Strategy::Log,
        Need::Mapped => !map.is_native() && strategy != Strategy::Log,
        Need::RelayLimit
        | Need::ExactStart
        | Need::ConcurrentWriters
        | Need::ConcurrentClaims
        | Need::RowLock
        | Need::TableLock
        | Need::Engine => true,
    }
}

fn shares_its_column(map: &TableMap, role: Role) -> bool {
    let name = |role: Role| map.column(role).map(|column| column.name.clone());
    map.columns()
        .any(|(other, column)| other != role && Some(&column.name) == name(role).as_ref())
}
