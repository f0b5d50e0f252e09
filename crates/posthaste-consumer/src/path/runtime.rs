//! Runs a consumer over a source: the polling thread, the workers, and the work beside them.

use std::sync::Arc;

use posthaste_core::InboxStore;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::committer::Committer;
use super::engine::Engine;
use super::lanes::{Lanes, StartWorker};
use super::signal::Signal;
use super::{poll, worker};
use crate::source::{Record, Source, SourceError};
use crate::upkeep::janitor;

/// Runs until the token fires, or the source cannot go on.
pub(crate) async fn run<I: InboxStore, S: Source>(
    engine: &Arc<Engine<I, S::Record>>,
    source: S,
    stop: CancellationToken,
) -> Result<(), SourceError> {
    let no_thread = |error| SourceError(format!("a thread cannot be started: {error}"));
    let signal = Arc::new(Signal::default());
    let committer = Committer::start(source.committer(), Arc::clone(&signal)).map_err(no_thread)?;
    let lanes = Lanes::new(workers(engine), committer, Arc::clone(&signal), &engine.config);
    let span = tracing::info_span!("consumer", group = engine.config.group);
    let purging = janitor::purge(Arc::clone(&engine.inbox), engine.config.clone(), stop.clone());
    tokio::spawn(purging.instrument(span.clone()));

    let (ended, end) = oneshot::channel();
    let (grace, polling) = (engine.config.shutdown_grace, stop.clone());
    let thread = std::thread::Builder::new().name("posthaste-consumer".to_owned());
    let started = thread.spawn(move || {
        let result = span.in_scope(|| poll::run(source, Arc::new(lanes), &polling, grace));
        drop(ended.send(result));
    });
    started.map_err(no_thread)?;

    tokio::spawn(async move {
        stop.cancelled().await;
        signal.notify();
    });
    end.await.unwrap_or_else(|_| {
        Err(SourceError(
            "the polling thread panicked; start the consumer again".to_owned(),
        ))
    })
}

fn workers<I: InboxStore, R: Record>(engine: &Arc<Engine<I, R>>) -> StartWorker<R> {
    let (engine, runtime) = (Arc::clone(engine), Handle::current());
    // The polling thread starts workers, within its span.
    Box::new(move |state, queue| {
        runtime.spawn(worker::run(Arc::clone(&engine), state, queue).in_current_span());
    })
}
