//! The worker of one lane: events in order, one at a time, each until it is settled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::envelope::ReceivedEvent;
use posthaste_core::trace::trace_id;
use posthaste_core::{Handled, InboxStore, StoreError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::attempt::{Failure, attempt, is_recorded, panicked, uncommitted};
use super::engine::Engine;
use super::lane::{LaneState, RunningWorker};
use super::process_span;
use crate::config::{Tombstones, Unhandled};
use crate::handling::{HandlerError, Origin};
use crate::source::Record;
use crate::upkeep::instrument;

/// How an event left the worker's hands.
#[derive(Debug, PartialEq, Eq)]
enum Settled {
    /// It is durable that it needs no more attention.
    Done,
    /// It is for the lane's next owner.
    Interrupted,
}

/// Works until the lane is revoked.
pub(crate) async fn run<I: InboxStore, R: Record>(
    engine: Arc<Engine<I, R>>,
    state: Arc<LaneState>,
    queue: mpsc::Receiver<R>,
) {
    let working = RunningWorker(state);
    let state = &working.0;
    let abandon = state.abandon.clone();
    if abandon.run_until_cancelled(work(&engine, state, queue)).await.is_none() {
        tracing::debug!(
            topic = state.lane.topic,
            partition = state.lane.partition,
            "abandoned an event in the middle; it comes again"
        );
    }
}

async fn work<I: InboxStore, R: Record>(engine: &Engine<I, R>, state: &LaneState, mut queue: mpsc::Receiver<R>) {
    let limit = engine.config.max_poll_records as usize;
    let mut batch = Vec::new();
    loop {
        let taking = queue.recv_many(&mut batch, limit);
        if !matches!(state.stop.run_until_cancelled(taking).await, Some(1..)) {
            return;
        }
        state.notify_room();
        for record in batch.drain(..) {
            state.begin();
            if state.stop.is_cancelled() || settle(engine, &record, &state.stop).await != Settled::Done {
                return;
            }
            state.settled(record.offset(), record.size());
        }
        state.batch_is_over();
    }
}

/// Handles an event, as often as it takes; gives it to the dead-letter topic if that is of no use.
async fn settle<I: InboxStore, R: Record>(engine: &Engine<I, R>, record: &R, stop: &CancellationToken) -> Settled {
    if record.is_tombstone() && engine.config.tombstones == Tombstones::Skip {
        instrument::tombstone(&engine.totals, record);
        return Settled::Done;
    }
    let event = match record.event() {
        Ok(event) => event,
        Err(error) => return dead_letter(engine, record, &format!("the record is no event: {error}"), 1, stop).await,
    };
    if engine.routes.get(&event.event_type).is_none() {
        if engine.config.unhandled == Unhandled::Skip {
            instrument::skipped(&engine.totals, record, &event);
            return Settled::Done;
        }
        let error = format!("no handler is registered for {}", event.event_type);
        return dead_letter(engine, record, &error, 1, stop).await;
    }
    let retry = &engine.config.retry;
    let mut history = History::default();
    loop {
        let failure = match try_once(engine, record, &event, history.attempts + 1).await {
            Ok(()) => {
                engine.database.recovered();
                return Settled::Done;
            }
            Err(failure) => failure,
        };
        if let Failure::Commit(error) = &failure {
            instrument::commit_failed(record, &event, history.lost_commits, error);
        }
        let wait = match history.judge(failure) {
            Fault::Database(error) => engine.database.failed(error),
            Fault::Event(error) => {
                let attempts = history.attempts;
                if error.is_permanent() || attempts >= retry.max_attempts {
                    if history.lost_commits > 0 && was_handled(engine, record, &event).await {
                        return Settled::Done;
                    }
                    return dead_letter(engine, record, &error.to_string(), attempts, stop).await;
                }
                let wait = retry.backoff.delay(attempts, rand::random());
                instrument::failed(&engine.totals, record, &event, attempts, &error, wait);
                wait
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return Settled::Interrupted;
        }
    }
}

/// Whose fault it is that an attempt failed.
enum Fault {
    /// It is waited for.
    Database(StoreError),
    /// It is counted.
    Event(HandlerError),
}

/// The failed attempts at an event.
#[derive(Debug, Default)]
struct History {
    attempts: u32,
    overdue: bool,
    lost_commits: u32,
}

impl History {
    fn judge(&mut self, failure: Failure) -> Fault {
        let error = match failure {
            Failure::Event(error) => error,
            Failure::Overdue(error) => {
                self.overdue = true;
                error
            }
            // Most likely it is the event's own earlier attempt that the database is busy with: without a count it would
            // wait for that as long as it takes, and hold one more connection with every try.
            Failure::Database(error) if self.overdue => HandlerError::retry(error),
            Failure::Database(error) => return Fault::Database(error),
            Failure::Commit(error) => {
                self.lost_commits += 1;
                if self.lost_commits == 1 {
                    return Fault::Database(error);
                }
                uncommitted(&error)
            }
        };
        self.attempts += 1;
        Fault::Event(error)
    }
}

/// Whether a commit that seemed to fail was made after all. If the inbox does not say, the event goes to the dead
/// letters: who replays it asks the inbox again.
async fn was_handled<I: InboxStore, R: Record>(engine: &Engine<I, R>, record: &R, event: &ReceivedEvent) -> bool {
    let prepare = || {
        engine.routes.get(&event.event_type)?(event.clone(), Origin::of(record), 1)
            .ok()?
            .effect
    };
    let Ok(Some(effect)) = catch_unwind(AssertUnwindSafe(prepare)) else {
        return false;
    };
    match is_recorded(&*engine.inbox, &effect).await {
        Ok(true) => {
            instrument::duplicate(&engine.totals, event, &effect.action);
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::debug!(%error, "the inbox does not say whether a commit was made");
            false
        }
    }
}

async fn try_once<I: InboxStore, R: Record>(
    engine: &Engine<I, R>,
    record: &R,
    event: &ReceivedEvent,
    number: u32,
) -> Result<(), Failure> {
    let Some(route) = engine.routes.get(&event.event_type) else {
        return Ok(());
    };
    let begun = Instant::now();
    let mut action = None;
    let limit = engine.config.handler_timeout;
    let work = async {
        // Made here, so that it has the span of the attempt as its parent.
        let span = tracing::info_span!(
            "event",
            topic = record.topic(),
            partition = record.partition(),
            offset = record.offset(),
            r#type = event.event_type,
            source = event.source,
            id = event.id,
            attempt = number,
            trace_id = trace_id(&event.headers),
        );
        let handling = async {
            let prepared = catch_unwind(AssertUnwindSafe(|| route(event.clone(), Origin::of(record), number)))
                .unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
                .map_err(Failure::Event)?;
            action = prepared.effect.as_ref().map(|effect| effect.action.clone());
            attempt(&*engine.inbox, prepared, limit).await
        };
        handling.instrument(span).await
    };
    match process_span::around(work, &engine.config.group, record, event, number).await? {
        Handled::Applied(()) => instrument::handled(&engine.totals, event, begun.elapsed()),
        Handled::Duplicate => instrument::duplicate(&engine.totals, event, action.as_deref().unwrap_or_default()),
    }
    Ok(())
}

const DEAD_LETTER_MIN_DELAY: Duration = Duration::from_secs(1);
const DEAD_LETTER_MAX_DELAY: Duration = Duration::from_secs(30);

/// Sends the record to the dead-letter topic. It is not given up before it is there: the partition waits.
async fn dead_letter<I: InboxStore, R: Record>(
    engine: &Engine<I, R>,
    record: &R,
    error: &str,
    attempts: u32,
    stop: &CancellationToken,
) -> Settled {
    let destination = engine.dead_letters.destination(record);
    instrument::dead_lettering(record, &destination, error, attempts);
    let mut wait = DEAD_LETTER_MIN_DELAY;
    while let Err(refused) = engine.dead_letters.write(record, error, attempts).await {
        tracing::warn!(
            topic = record.topic(),
            partition = record.partition(),
            offset = record.offset(),
            error = refused,
            "the dead-letter topic cannot be written; the partition waits"
        );
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return Settled::Interrupted;
        }
        wait = (wait * 2).min(DEAD_LETTER_MAX_DELAY);
    }
    instrument::dead_lettered(&engine.totals, record);
    Settled::Done
}
