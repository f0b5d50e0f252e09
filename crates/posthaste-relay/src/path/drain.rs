//! Claims until nothing is due any more.

use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{OutboxStats, StoreErrorKind};
use tokio::time::{Instant, sleep, timeout};

use crate::engine::Engine;
use crate::guard::in_flight::Load;
use crate::path::claim::{CLAIMING, Claimer, Found, wait_for_room};
use crate::upkeep::retry_logger::RetryLogger;

/// So many claims in a row may fail, for reasons that may pass, before a drain ends: about three seconds, or as long as
/// they take.
const MAX_DRAIN_FAILURES: u32 = 5;

/// So many claims in a row that bring nothing to hand over end a drain.
const MAX_IN_VAIN: u32 = 3;

/// A drain waits no longer than this for a broker that throttles.
const MAX_DRAIN_PAUSE: Duration = Duration::from_secs(5);

/// A drain waits no longer than this for rows that another transaction has locked, or a table.
const MAX_DRAIN_LOCKS: Duration = Duration::from_secs(10);

/// A drain waits so long for shards that another relay hands over, or leaves at its end: longer than relays take to notice.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the locks of one that was killed may outlive the news of it.
const LOCK_LINGER: Duration = Duration::from_secs(1);

/// How often it looks for them.
const HANDOVER_POLL: Duration = Duration::from_millis(50);

/// Why draining ended early, or why anything did if a task panicked.
#[derive(Debug)]
pub(crate) enum DrainError {
    Store(StoreError),
    CircuitOpen,
    /// The broker throttles.
    Paused(String),
    Superseded,
    /// A task of the relay panicked.
    Panicked,
}

impl From<StoreError> for DrainError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Delivers what is due, and what is freed meanwhile.
pub(crate) async fn run(claimer: &mut Claimer<'_>) -> Result<(), DrainError> {
    loop {
        deliver_what_is_due(claimer).await?;
        // Others may wait behind those whose rows were locked.
        if !claimer.engine.refusals.wait_for_locks(MAX_DRAIN_LOCKS).await {
            return Ok(());
        }
    }
}

async fn deliver_what_is_due(claimer: &mut Claimer<'_>) -> Result<(), DrainError> {
    let Engine {
        in_flight,
        circuit,
        lead,
        refusals,
        totals,
        ..
    } = &**claimer.engine;
    let mut retry_logger = RetryLogger::new(CLAIMING, &claimer.engine.health);
    let (mut failures, mut in_vain) = (0, 0);
    let mut failing_since = None;
    let mut idleness = Idleness::default();
    let mut delivered_at_pause = None;
    loop {
        wait_for_room(claimer.engine).await;
        if !lead.is_leader() {
            in_flight.wait_until(|load| load == Load::default()).await;
            return Err(DrainError::Superseded);
        }
        if circuit.view().state != CircuitState::Closed {
            in_flight.wait_until(|load| load == Load::default()).await;
            // A drain has to end, and the broker may be unavailable for long.
            if circuit.view().state != CircuitState::Closed {
                return Err(DrainError::CircuitOpen);
            }
        }
        if circuit.paused().is_some() {
            be_patient(claimer.engine, &mut delivered_at_pause).await?;
        }
        if refusals.is_barren() {
            in_flight.wait_until(|load| load == Load::default()).await;
            // Whatever is published next would be refused too.
            if refusals.is_barren() {
                return Ok(());
            }
        }
        // Looked at before the claim: what is settled meanwhile may free rows that the claim did not get.
        let (before, delivered) = (in_flight.load(), totals.delivered());
        let asked = Instant::now();
        let found = match claimer.run_once(None).await {
            Ok(found) => found,
            Err(error) if may_pass(&error, failures, *failing_since.get_or_insert(asked)) => {
                failures += 1;
                sleep(retry_logger.failed(&error)).await;
                continue;
            }
            Err(error) => {
                // What is with the publisher is worth an answer, as far as the database takes it.
                let answered = in_flight.wait_until(|load| load == Load::default());
                let _ = timeout(claimer.engine.config.shutdown_grace, answered).await;
                return Err(error.into());
            }
        };
        retry_logger.recovered();
        failures = 0;
        failing_since = None;
        match found {
            Found::Nothing if before == Load::default() => {
                if !claimer.scan_budget.backlog() {
                    if idleness.is_over(claimer.engine, asked).await? {
                        return Ok(());
                    }
                    continue;
                }
                // That look may have ended early; the next one sees everything.
                claimer.scan_budget.backlog_is_over();
            }
            Found::Nothing => in_flight.wait_until(|load| load.messages <= before.messages / 2).await,
            Found::Suspects => in_flight.wait_until(|load| load == Load::default()).await,
            Found::Refused => {
                in_flight.wait_until(|load| load == Load::default()).await;
                in_vain += 1;
                // What was in flight before may have freed others, and what was lost may be written this time.
                if before == Load::default() && (refusals.count() > 0 || in_vain >= MAX_IN_VAIN) {
                    return Ok(());
                }
                continue;
            }
            Found::Again => {
                in_flight.wait_until(|load| load == Load::default()).await;
                if totals.delivered() == delivered {
                    in_vain += 1;
                    // Else rows that take as long to put off as they wait would come round without end.
                    if in_vain >= MAX_IN_VAIN {
                        return Ok(());
                    }
                    continue;
                }
            }
            Found::All(token) => claimer.wait_beside(token).await,
            Found::Unclaimable if claimer.engine.unclaimable.is_full() => return Ok(()),
            Found::Some | Found::FullBatch | Found::Further | Found::Trial(_) | Found::Unclaimable => {}
        }
        in_vain = 0;
        idleness = Idleness::default();
    }
}

/// What a drain has seen since its claims find nothing.
#[derive(Debug, Default)]
struct Idleness {
    looked_again: bool,
    handover: Handover,
}

impl Idleness {
    /// Whether nothing more is to come, after a claim that began at `asked`.
    async fn is_over(&mut self, engine: &Engine, asked: Instant) -> Result<bool, StoreError> {
        let has_company = engine.store.reading().has_company;
        if self.looked_again && self.handover.may_come(has_company, asked) {
            // Not counted anew each time: that takes long where much is left.
            sleep(HANDOVER_POLL).await;
            return Ok(false);
        }
        let remaining = still_due(engine).await?;
        if remaining > 0 && !self.looked_again {
            // What came meanwhile, or was freed, is delivered too, and what claims look at only from time to time.
            engine.store.rescan().await;
            self.looked_again = true;
            return Ok(false);
        }
        engine.totals.remaining(remaining);
        Ok(true)
    }
}

/// The wait for shards that another relay may leave to this one.
#[derive(Debug, Default)]
struct Handover {
    idle_since: Option<Instant>,
    /// When another relay was seen last.
    company_at: Option<Instant>,
}

impl Handover {
    /// Whether a claim that began at `asked`, and found nothing, may have been too early.
    fn may_come(&mut self, has_company: bool, asked: Instant) -> bool {
        if has_company {
            self.company_at = Some(asked);
        }
        let idle_since = *self.idle_since.get_or_insert(asked);
        let was_there = |at: Instant| asked.duration_since(at) < LOCK_LINGER;
        self.company_at.is_some_and(was_there) && asked.duration_since(idle_since) < HANDOVER_TIMEOUT
    }
}

/// How many rows are due, or held by others, though no claim gets them. Not counted within topics or a tenant.
async fn still_due(engine: &Engine) -> Result<u64, StoreError> {
    let scope = &engine.config.scope;
    if !scope.topics.is_empty() || scope.tenant.is_some() {
        return Ok(0);
    }
    let OutboxStats {
        pending,
        waiting,
        processing,
        ..
    } = engine.store.stats(&scope.namespace).await?;
    Ok(pending.saturating_sub(waiting) + processing)
}

/// Waits for as long as the broker asks for, within reason.
async fn be_patient(engine: &Engine, delivered_at_pause: &mut Option<u64>) -> Result<(), DrainError> {
    let Engine {
        in_flight,
        circuit,
        totals,
        ..
    } = engine;
    in_flight.wait_until(|load| load == Load::default()).await;
    // Only now: the last answers may have asked for more.
    let Some((left, reason)) = circuit.paused() else {
        return Ok(());
    };
    let delivered = totals.delivered();
    // A broker that asks again and took nothing in between may ask forever.
    if left > MAX_DRAIN_PAUSE || *delivered_at_pause == Some(delivered) {
        return Err(DrainError::Paused(reason));
    }
    *delivered_at_pause = Some(delivered);
    sleep(left).await;
    Ok(())
}

/// Whether a drain tries again after a claim that failed so often before, and since when.
fn may_pass(error: &StoreError, failures: u32, since: Instant) -> bool {
    // Each wait for a lock may be long.
    let waits_too_long = error.kind == StoreErrorKind::Contention && since.elapsed() >= MAX_DRAIN_LOCKS;
    error.kind.is_transient() && failures < MAX_DRAIN_FAILURES && !waits_too_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_waited_for_beside_another_relay_and_a_moment_longer() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        assert!(!Handover::default().may_come(false, begun), "alone");
        let mut handover = Handover::default();
        assert!(handover.may_come(true, at(0)) && handover.may_come(true, at(500)));
        assert!(handover.may_come(false, at(1_400)), "its locks may still be there");
        assert!(!handover.may_come(false, at(1_500)));
        let mut handover = Handover::default();
        assert!(handover.may_come(true, at(0)) && handover.may_come(true, at(2_999)));
        assert!(!handover.may_come(true, at(3_000)), "it keeps them");
    }
}
