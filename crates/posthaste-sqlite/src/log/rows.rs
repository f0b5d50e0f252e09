//! What rows of a log are beyond their messages.

use posthaste_core::Message;
use posthaste_core::store::{DeadHead, KeyOrdering};
use posthaste_sql::log::{Lane, Ranges};

/// Within what a message keeps its order.
pub(super) fn lane(message: &Message) -> Option<Lane> {
    let key = message.ordering_key.as_ref()?;
    Some((message.topic.clone(), key.clone()))
}

/// Ranges as statements take them.
pub(super) fn pairs(ranges: &Ranges) -> Vec<(i64, i64)> {
    ranges.iter().map(|range| (*range.start(), *range.end())).collect()
}

/// What a claim says about order.
pub(super) struct Policy<'a> {
    pub(super) ordered: bool,
    dead_blocks: bool,
    except: &'a [String],
}

impl<'a> Policy<'a> {
    pub(super) fn of(ordering: &'a KeyOrdering) -> Self {
        match ordering {
            KeyOrdering::None => Self {
                ordered: false,
                dead_blocks: false,
                except: &[],
            },
            KeyOrdering::PerKey { dead_head, except } => Self {
                ordered: true,
                dead_blocks: *dead_head == DeadHead::Block,
                except,
            },
        }
    }

    /// Whether a row that died blocks its lane in any topic.
    pub(super) fn may_block(&self) -> bool {
        self.dead_blocks || !self.except.is_empty()
    }

    /// Whether it does in this one.
    pub(super) fn blocks(&self, topic: &str) -> bool {
        self.except.iter().any(|other| other == topic) != self.dead_blocks
    }
}
