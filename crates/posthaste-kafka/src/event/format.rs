//! The two modes of the binding, and the names that it takes.

use serde::{Deserialize, Serialize};

use crate::dead_letter;

/// The header with the media type.
pub const CONTENT_TYPE: &str = "content-type";

/// What the names of attributes begin with in binary mode.
pub const PREFIX: &str = "ce_";

/// The media type of structured mode.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// How an event becomes a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Attributes as headers, the payload as it is.
    #[default]
    Binary,
    /// Attributes and payload in one JSON object.
    Structured,
}

/// Whether a header's own name is one that readers take for something else.
pub(super) fn is_taken(name: &str) -> bool {
    let begins_with = |prefix: &str| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    name.eq_ignore_ascii_case(CONTENT_TYPE) || begins_with(PREFIX) || begins_with(dead_letter::PREFIX)
}
