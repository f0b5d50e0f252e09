//! Being told that there is work, instead of asking.

use async_trait::async_trait;

/// Wakes a relay that waits for work.
///
/// A wake-up is a hint. Losing one costs latency only, because the relay also polls; a source that lost its connection
/// must wake once after it is back, for what came in between.
#[async_trait]
pub trait Listener: Send {
    /// Resolves when there may be work. Must be cancel-safe.
    async fn wait(&mut self);
}

/// Tells relays that there may be work; to be called after a commit, never inside a transaction.
pub trait Notifier: Send + Sync + 'static {
    /// Notifies. Returns at once; many notifications close together may be heard as one.
    fn notify(&self);
}
