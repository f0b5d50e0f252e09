//! Room for others beside rows that claims bring again and again for nothing.
//!
//! Where a table has no place to say that a row waits, the row comes back with every claim: because its verdict is
//! known and could not be written, or because its destination is unavailable. Such rows stand at the head of the table.
//! Others must not wait behind them, so the next claim takes as many more as the last one brought in vain, and if that
//! was all it brought, at once twice as many.

use std::collections::HashSet;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::ClaimedMessage;

use crate::engine::Engine;
use crate::guard::in_flight::Load;
use crate::reported::stream_of;
use crate::upkeep::instrument;

/// No claim takes more than so many rows in vain, nor more than so many bytes.
const MAX_MESSAGES: u32 = 10_000;
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Bypass {
    in_vain: Load,
    /// Whether the log says that others wait all the same.
    told: bool,
}

/// What a claim brought besides rows that are not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    Some,
    /// None, but the next claim looks past what this one brought.
    Further,
    None,
}

impl Bypass {
    /// How many rows to claim, for so many that are handed over.
    pub(crate) fn limit(&self, wanted: u32) -> u32 {
        wanted.saturating_add(self.in_vain.messages.min(MAX_MESSAGES))
    }

    /// How many bytes to claim, for so many that are handed over.
    pub(crate) fn bytes(&self, wanted: u64) -> u64 {
        wanted.saturating_add(self.in_vain.bytes.min(MAX_BYTES))
    }

    /// Takes note of what a claim brought. One for a trial looks past rows of destinations that were tried in vain also
    /// where these do not come back: one at a time they would keep it from finding a destination that is there.
    pub(crate) fn looked(&mut self, engine: &Engine, messages: &[ClaimedMessage], full: bool, trial: bool) -> Others {
        self.in_vain = in_vain(engine, messages, trial);
        let messages = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        if messages == 0 || self.in_vain.messages < messages {
            self.told = false;
            return Others::Some;
        }
        if full && messages < MAX_MESSAGES && self.in_vain.bytes < MAX_BYTES {
            self.in_vain.messages = self.in_vain.messages.saturating_mul(2);
            self.in_vain.bytes = self.in_vain.bytes.saturating_mul(2);
            return Others::Further;
        }
        if full && !std::mem::replace(&mut self.told, true) {
            instrument::crowded(&engine.config.scope.namespace, messages);
        }
        Others::None
    }
}

/// What is not handed to the publisher: the verdict is known, or its destination is unavailable, or it waits for such a
/// one.
fn in_vain(engine: &Engine, messages: &[ClaimedMessage], trial: bool) -> Load {
    let any_held = (engine.requirements.batch_settlement || trial) && engine.destinations.any();
    let mut load = Load::default();
    if !any_held && engine.refusals.is_empty() {
        return load;
    }
    let mut stopped = HashSet::new();
    for claimed in messages {
        let message = &claimed.message;
        let lane = message.lane();
        let recalled = engine.refusals.recall(message.id, claimed.version, claimed.attempts);
        let recalled = recalled.filter(|recalled| recalled.holds);
        let held = || any_held && engine.destinations.held(stream_of(message)).is_some();
        let stops = recalled
            .as_ref()
            .map_or_else(held, |known| known.verdict != Verdict::Delivered);
        let behind = lane.is_some_and(|lane| stopped.contains(&lane));
        if recalled.is_some() || stops || behind {
            load.messages += 1;
            load.bytes += message.payload.len() as u64;
        }
        if stops {
            stopped.extend(lane);
        }
    }
    load
}
