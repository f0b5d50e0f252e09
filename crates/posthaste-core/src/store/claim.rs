//! Work that is asked for, handed out and taken back.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{KeyOrdering, Scope, WorkerId};
use crate::integrity::StoredHash;
use crate::lifecycle::LeaseToken;
use crate::message::{Message, MessageId};

/// Asks for work.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who asks; written to the rows for the operator's eyes, never used as a fence.
    pub worker: WorkerId,
    /// The fence for what is claimed now. A new one for every claim.
    pub token: LeaseToken,
    /// At most so many rows.
    pub limit: u32,
    /// At most so many bytes of payload, but always one row.
    pub max_bytes: u64,
    /// How many due rows may be scanned to find some whose key is free; as many as it takes without one. A hint for
    /// stores that would have to walk past a large backlog of keys in flight.
    pub scan_limit: Option<u32>,
    /// How long the rows are leased.
    pub lease: Duration,
    /// Rows with so many attempts are not claimed but given up.
    pub max_attempts: u32,
    /// In which order.
    pub ordering: KeyOrdering,
    /// Which messages.
    pub scope: Scope,
    /// Rows that are not to be claimed, because the database refused their claim lately. What follows them in their keys
    /// waits for them all the same.
    pub left_out: Vec<MessageId>,
    /// Whether later messages of a lane may be handed out while earlier ones are in flight.
    pub pipelined: bool,
}

/// Work that was handed out.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// The rows now leased, in order.
    pub messages: Vec<ClaimedMessage>,
    /// Whether these rows come from a worker that let its lease run out. Such rows are never mixed with others, and
    /// their number is limited by [`crate::reclaim::reclaim_limit`], because one of them may have killed that worker.
    pub reclaimed: bool,
    /// Rows that had used all their attempts and are dead now.
    pub died: Vec<MessageId>,
    /// Rows that would have been claimed, had the database not refused to write their claim. They are as they were.
    pub refused: Vec<RefusedRow>,
}

/// A row that the database refuses to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// The row.
    pub id: MessageId,
    /// Why, with the remedy where there is one.
    pub error: String,
}

/// A row under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMessage {
    /// What to send.
    pub message: Message,
    /// Why it cannot be published whatever the broker says, such as a type name that gives no topic.
    pub fault: Option<String>,
    /// Its number in the order of inserts, where the table keeps one.
    pub sequence: Option<i64>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// Claims so far, this one included.
    pub attempts: u32,
    /// The hash made at enqueue, where the table keeps one.
    pub hash: Option<StoredHash>,
    /// The row's version, where the table keeps one.
    pub version: Option<i64>,
    /// The row's own limit of attempts, where the table keeps one; else the policy's holds.
    pub max_attempts: Option<u32>,
}

/// Asks for what crashed workers held.
#[derive(Clone, Debug)]
pub struct RecoverRequest {
    /// Which messages.
    pub scope: Scope,
    /// Rows with so many attempts are given up.
    pub max_attempts: u32,
    /// Rows that were claimed longer ago are taken back.
    pub stalled_after: Duration,
}

/// What became of rows whose worker crashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pending again.
    pub pending: Vec<MessageId>,
    /// Dead, because they had used all their attempts.
    pub died: Vec<MessageId>,
    /// As they were, because the database refused to change them.
    pub refused: Vec<RefusedRow>,
}
