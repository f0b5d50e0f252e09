//! What became of verdicts and of leases.

use std::time::Duration;

use super::StoreError;
use crate::lifecycle::{LeaseToken, Settlement};
use crate::message::MessageId;

/// What became of verdicts. Those that are in no list were applied.
#[derive(Debug, Default)]
pub struct Settled {
    /// The lease was lost: the row is no longer the caller's, and nothing was written.
    pub lost: Vec<MessageId>,
    /// The database refused to write the verdict, and would again. The row is as it was before its claim.
    pub refused: Vec<RefusedVerdict>,
    /// Another transaction has locked the row, or the whole table. It is still under the caller's token, as far as can be
    /// said, and nothing was written.
    pub busy: Vec<BusyRow>,
}

/// A row that another transaction has locked, by itself or with its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyRow {
    /// The row.
    pub id: MessageId,
    /// Who has locked it, in words for an operator, where the database says.
    pub holder: Option<String>,
}

/// Asks for longer leases.
#[derive(Clone, Copy, Debug)]
pub struct ExtendRequest<'a> {
    /// Under which token the rows were claimed.
    pub token: LeaseToken,
    /// The rows.
    pub ids: &'a [MessageId],
    /// How long they are leased, from now.
    pub lease: Duration,
}

impl<'a> ExtendRequest<'a> {
    /// For these rows.
    pub fn new(token: LeaseToken, ids: &'a [MessageId], lease: Duration) -> Self {
        Self { token, ids, lease }
    }
}

/// What became of leases that were to be prolonged. Those that are in no list are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// Held for longer now.
    pub held: Vec<MessageId>,
    /// Still under the token, as far as can be said, but another transaction has locked the row, or the whole table: the
    /// lease runs on as it was.
    pub busy: Vec<MessageId>,
}

impl Extended {
    /// All leases that are held were prolonged.
    pub fn all(held: Vec<MessageId>) -> Self {
        Self { held, busy: Vec::new() }
    }

    /// None could be prolonged, because another transaction has locked the whole table.
    pub fn busy(busy: Vec<MessageId>) -> Self {
        Self { held: Vec::new(), busy }
    }
}

/// A verdict that the database refused.
#[derive(Debug)]
pub struct RefusedVerdict {
    /// The row.
    pub id: MessageId,
    /// Why.
    pub error: StoreError,
}

impl Settled {
    /// None could be written, because another transaction has locked the whole table. `holder` says who, for an operator.
    pub fn busy(settlements: &[Settlement], holder: &str) -> Self {
        let busy = |settlement: &Settlement| BusyRow {
            id: settlement.id,
            holder: Some(holder.to_owned()),
        };
        Self {
            busy: settlements.iter().map(busy).collect(),
            ..Self::default()
        }
    }

    /// All verdicts were applied but those on `lost`.
    pub fn but(lost: Vec<MessageId>) -> Self {
        Self {
            lost,
            ..Self::default()
        }
    }
}
