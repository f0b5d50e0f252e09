//! Wake-ups, which cut the wait between claims short.

use std::sync::Arc;

use posthaste_core::wake::{Listener, Notifier};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Wakes a relay in the same process. Notify it after a commit.
#[derive(Clone, Debug, Default)]
pub struct LocalNotifier(Arc<Notify>);

impl LocalNotifier {
    /// Resolves at the next notification, or at once if one came since the last wait.
    pub(crate) async fn notified(&self) {
        self.0.notified().await;
    }
}

impl Notifier for LocalNotifier {
    fn notify(&self) {
        self.0.notify_one();
    }
}

/// Passes the store's wake-ups on until the relay stops.
pub(crate) async fn forward(mut source: Box<dyn Listener>, notifier: LocalNotifier, stop: CancellationToken) {
    while stop.run_until_cancelled(source.wait()).await.is_some() {
        notifier.notify();
    }
}
