//! What the keeper of the file is to do.

use posthaste_core::MessageId;
use tokio::sync::oneshot;

use super::caught::Caught;

#[derive(Debug)]
pub(crate) enum FileOrder {
    /// Deaths that the database does not take.
    Keep(Vec<Caught>),
    /// A letter that is no longer needed.
    Settled(MessageId),
    /// Answered when everything before it is written, or cannot be.
    Flush(oneshot::Sender<()>),
}
