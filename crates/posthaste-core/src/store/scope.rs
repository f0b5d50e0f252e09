//! Who asks for work, for which messages, and in which order.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::message::DEFAULT_NAMESPACE;

/// The identity of one worker, made when it starts and never configured: two processes with equal configuration are
/// still two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// An id that no worker has had.
    #[expect(
        clippy::new_without_default,
        reason = "a default would suggest that two of them are equal"
    )]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id as a UUID.
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for WorkerId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

/// Which messages a relay serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scope {
    /// The namespace. Defaults to `default`.
    pub namespace: String,
    /// Only these topics; all of them if empty. Defaults to all.
    pub topics: Vec<String>,
    /// Only this tenant. Defaults to all, and to messages without one.
    pub tenant: Option<String>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            topics: Vec::new(),
            tenant: None,
        }
    }
}

/// What happens to a key whose head is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadHead {
    /// The rest of the key goes on without it.
    #[default]
    Skip,
    /// The rest of the key waits until an operator replays or discards it.
    Block,
}

/// In which order rows may be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrdering {
    /// Keys are ignored.
    None,
    /// Rows of one key are claimed in sequence, and none while an earlier one is leased or waiting.
    PerKey {
        /// The policy of topics that are not listed.
        dead_head: DeadHead,
        /// Topics with the opposite policy.
        except: Vec<String>,
    },
}
