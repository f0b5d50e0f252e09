//! What all parts of a running consumer share.

use std::sync::Arc;

use posthaste_core::InboxStore;

use crate::config::ConsumerConfig;
use crate::guard::{LimitedInbox, RetryLogger};
use crate::handling::Routes;
use crate::report::Totals;
use crate::source::DeadLetterSink;

pub(crate) struct Engine<I: InboxStore, R> {
    pub(crate) config: ConsumerConfig,
    pub(crate) inbox: Arc<LimitedInbox<I>>,
    pub(crate) routes: Routes<I::Connection>,
    pub(crate) dead_letters: Arc<dyn DeadLetterSink<R>>,
    pub(crate) database: RetryLogger,
    pub(crate) totals: Totals,
}
