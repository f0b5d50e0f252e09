//! What a claim says about order.

use posthaste_core::store::{DeadHead, KeyOrdering};

use super::window::LaneRule;

/// What a claim says about order.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// Whether rows of a lane keep their order.
    pub ordered: bool,
    dead_blocks: bool,
    except: &'a [String],
}

impl<'a> Policy<'a> {
    /// That of a claim.
    pub fn of(ordering: &'a KeyOrdering) -> Self {
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

    /// In which order rows go.
    pub fn lanes(&self, pipelined: bool) -> LaneRule {
        match (self.ordered, pipelined) {
            (false, _) => LaneRule::Unordered,
            (true, false) => LaneRule::OneBatch,
            (true, true) => LaneRule::Pipelined,
        }
    }

    /// Whether a row that was given up blocks its lane in any topic.
    pub fn may_block(&self) -> bool {
        self.dead_blocks || !self.except.is_empty()
    }

    /// Whether it does where nothing else is said, and the topics with the other policy.
    pub fn blocking(&self) -> (bool, &'a [String]) {
        (self.dead_blocks, self.except)
    }

    /// Whether it does in this one.
    pub fn blocks(&self, topic: &str) -> bool {
        self.except.iter().any(|other| other == topic) != self.dead_blocks
    }
}
