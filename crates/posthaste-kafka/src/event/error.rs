//! Why a record is no event.

use thiserror::Error;

use super::format::STRUCTURED;

/// A record that is no event.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A tombstone.
    #[error("the record has no value; it is a tombstone, not an event")]
    NoPayload,
    /// An attribute that every event has is not there.
    #[error("{name} is missing; the producer must set it")]
    Missing {
        /// The header, or the member in structured mode.
        name: String,
    },
    /// An attribute has a value that cannot be read.
    #[error("{name} = {value:?}: {reason}")]
    Malformed {
        /// The header, or the member in structured mode.
        name: String,
        /// What stands there.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Structured mode in another format than JSON.
    #[error("content-type = {0:?}: only {STRUCTURED} is understood of the structured formats")]
    UnknownFormat(String),
    /// Structured mode whose JSON cannot be read.
    #[error("the record's value is not an event in the JSON event format: {0}")]
    Json(#[from] serde_json::Error),
}
