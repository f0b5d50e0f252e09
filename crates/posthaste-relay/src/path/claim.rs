//! Takes work from the store and starts its publication, as fast as there is room.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::breaker::CircuitState;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, OutboxStats, StoreErrorKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::RelayConfig;
use crate::engine::Engine;
use crate::guard::clock::Moment;
use crate::guard::in_flight::Load;
use crate::guard::lease::BatchLease;
use crate::path::bypass::{Bypass, Others};
use crate::path::depth::Depth;
use crate::path::desk::Outcomes;
use crate::path::dispatch;
use crate::path::failpoint;
use crate::upkeep::health::Health;
use crate::upkeep::instrument;
use crate::upkeep::outage::Outage;
use crate::upkeep::undelivered::Cause;
use crate::upkeep::wake::{self, Pace};

/// The longest wait between claims that bring only rows whose verdicts are refused.
const LONGEST_REFUSED_WAIT: Duration = Duration::from_secs(5);

/// So many claims in a row may fail, for reasons that may pass, before a drain ends: about three seconds, or as long as
/// they take.
const MAX_DRAIN_FAILURES: u32 = 5;

/// So many claims in a row that bring nothing to hand over end a drain.
const MAX_IN_VAIN: u32 = 3;

/// A drain waits no longer than this for a broker that asks for patience.
const MAX_DRAIN_PAUSE: Duration = Duration::from_secs(5);

/// A drain waits no longer than this for rows that somebody else has locked, or a table.
const MAX_DRAIN_LOCKS: Duration = Duration::from_secs(10);

/// What the loop is doing, in the words of health checks.
const CLAIMING: &str = "claiming";

/// When the loop ends.
pub(crate) enum Until {
    /// When the token fires.
    Cancelled(CancellationToken),
    /// When nothing is due and nothing is in flight; a store that fails or a circuit that opens ends it too.
    Idle,
}

/// Why draining ended early.
#[derive(Debug)]
pub(crate) enum Hindered {
    Store(StoreError),
    CircuitOpen,
    /// The broker asks for patience.
    Paused(String),
    Superseded,
    /// A task of the relay panicked.
    Panicked,
}

impl From<StoreError> for Hindered {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What one claim brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Some,
    FullBatch,
    /// A full batch, beside which nothing else was free a moment ago.
    All(LeaseToken),
    /// Rows of a vanished worker.
    Suspects,
    /// Rows to try the broker with.
    Trial(LeaseToken),
    /// Only rows that are not handed over: their verdicts are known and could not be written, or their destination is away
    /// and the table has no place to say until when.
    Refused,
    /// Only such rows, and the next claim looks past them.
    Further,
    /// Only rows that this drain has put off before.
    Again,
    /// Nothing, but rows that cannot be claimed, and were not known before. There may be others behind them.
    Unclaimable,
}

/// Claims until the end and returns the publications that are still running.
///
/// The loop is stopped only where it waits, never in the middle of a claim: rows that were leased and then forgotten
/// would have to wait for their lease to run out.
pub(crate) async fn run(engine: &Arc<Engine>, outcomes: Outcomes, until: Until) -> (JoinSet<()>, Option<Hindered>) {
    let mut claimer = Claimer {
        engine,
        outcomes,
        publications: JoinSet::new(),
        shutdown: CancellationToken::new(),
        depth: Depth::new(engine.config.batch_size),
        bypass: Bypass::default(),
        nothing_beside: None,
    };
    let hindered = match until {
        Until::Idle => claimer.drain().await.err(),
        Until::Cancelled(shutdown) => {
            claimer.shutdown = shutdown;
            claimer.claim_until_shutdown().await;
            None
        }
    };
    (claimer.publications, hindered)
}

struct Claimer<'a> {
    engine: &'a Arc<Engine>,
    outcomes: Outcomes,
    publications: JoinSet<()>,
    shutdown: CancellationToken,
    depth: Depth,
    bypass: Bypass,
    /// Until when a claim beside rows in flight would most likely find nothing that is free, as the last one did.
    nothing_beside: Option<Instant>,
}

impl Claimer<'_> {
    async fn drain(&mut self) -> Result<(), Hindered> {
        loop {
            self.deliver_what_is_due().await?;
            // Others may wait behind those whose rows were locked.
            if !self.engine.refusals.wait_for_locks(MAX_DRAIN_LOCKS).await {
                return Ok(());
            }
        }
    }

    async fn deliver_what_is_due(&mut self) -> Result<(), Hindered> {
        let Engine {
            in_flight,
            circuit,
            lead,
            refusals,
            totals,
            ..
        } = &**self.engine;
        let mut outage = Outage::new(CLAIMING, &self.engine.health);
        let (mut failures, mut in_vain) = (0, 0);
        let mut failing_since = None;
        let mut looked_again = false;
        let mut delivered_at_pause = None;
        loop {
            wait_for_room(self.engine).await;
            if !lead.is_sure() {
                in_flight.wait_until(|load| load == Load::default()).await;
                return Err(Hindered::Superseded);
            }
            if circuit.view().state != CircuitState::Closed {
                in_flight.wait_until(|load| load == Load::default()).await;
                // Whoever drains wants an end, and the broker may be away for long.
                if circuit.view().state != CircuitState::Closed {
                    return Err(Hindered::CircuitOpen);
                }
            }
            if circuit.paused().is_some() {
                self.be_patient(&mut delivered_at_pause).await?;
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
            let found = match self.run_once(None).await {
                Ok(found) => found,
                Err(error) if may_pass(&error, failures, *failing_since.get_or_insert(asked)) => {
                    failures += 1;
                    sleep(outage.failed(&error)).await;
                    continue;
                }
                Err(error) => {
                    // What is with the publisher is worth an answer, as far as the database takes it.
                    let answered = in_flight.wait_until(|load| load == Load::default());
                    let _ = timeout(self.engine.config.shutdown_grace, answered).await;
                    return Err(error.into());
                }
            };
            outage.over();
            failures = 0;
            failing_since = None;
            match found {
                Found::Nothing if before == Load::default() => {
                    if !self.depth.backlog() {
                        let remaining = self.still_due().await?;
                        if remaining == 0 || looked_again {
                            totals.remaining(remaining);
                            return Ok(());
                        }
                        // What came meanwhile, or was freed, is delivered too.
                        looked_again = true;
                        continue;
                    }
                    // That look may have ended early; the next one sees everything.
                    self.depth.backlog_is_over();
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
                Found::All(token) => self.wait_beside(token).await,
                Found::Unclaimable if self.engine.unclaimable.is_full() => return Ok(()),
                Found::Some | Found::FullBatch | Found::Further | Found::Trial(_) | Found::Unclaimable => {}
            }
            in_vain = 0;
            looked_again = false;
        }
    }

    /// How many rows are due, or held by somebody, though no claim gets them. Nobody counts within topics or a tenant.
    async fn still_due(&self) -> Result<u64, StoreError> {
        let scope = &self.engine.config.scope;
        if !scope.topics.is_empty() || scope.tenant.is_some() {
            return Ok(0);
        }
        let OutboxStats {
            pending,
            waiting,
            processing,
            ..
        } = self.engine.store.stats(&scope.namespace).await?;
        Ok(pending.saturating_sub(waiting) + processing)
    }

    /// Waits for as long as the broker asks for, within reason.
    async fn be_patient(&self, delivered_at_pause: &mut Option<u64>) -> Result<(), Hindered> {
        let Engine {
            in_flight,
            circuit,
            totals,
            ..
        } = &**self.engine;
        in_flight.wait_until(|load| load == Load::default()).await;
        // Only now: the last answers may have asked for more.
        let Some((left, reason)) = circuit.paused() else {
            return Ok(());
        };
        let delivered = totals.delivered();
        // A broker that asks again and took nothing in between may ask for ever.
        if left > MAX_DRAIN_PAUSE || *delivered_at_pause == Some(delivered) {
            return Err(Hindered::Paused(reason));
        }
        *delivered_at_pause = Some(delivered);
        sleep(left).await;
        Ok(())
    }

    /// Waits until a batch is settled, or until it is worth a look again: others may have come meanwhile.
    async fn wait_beside(&self, token: LeaseToken) {
        tokio::select! {
            () = self.engine.doorbell.rung() => {}
            () = self.engine.in_flight.wait_for_batch(token) => {}
            () = sleep_until(self.nothing_beside.unwrap_or_else(Instant::now)) => {}
        }
    }

    async fn claim_until_shutdown(&mut self) {
        let shutdown = self.shutdown.clone();
        let Engine {
            in_flight,
            circuit,
            lead,
            refusals,
            ..
        } = &**self.engine;
        let mut outage = Outage::new(CLAIMING, &self.engine.health);
        let RelayConfig {
            poll_interval,
            max_poll_interval,
            fixed_delay,
            lease,
            ..
        } = self.engine.config;
        let mut pace = Pace::new(poll_interval, max_poll_interval);
        let mut refused_wait = poll_interval;
        let health = &self.engine.health;
        let turn = async || {
            loop {
                wait_for_room(self.engine).await;
                without_claims(health, lead.wait()).await;
                let writable = without_claims(health, refusals.wait_for_room()).await;
                let trials = without_claims(health, circuit.wait_for_room()).await;
                if lead.is_sure() {
                    return trials.into_iter().chain(writable).min();
                }
            }
        };
        while let Some(trials) = shutdown.run_until_cancelled(turn()).await {
            while self.publications.try_join_next().is_some() {}
            let (before, started) = (in_flight.load(), Instant::now());
            let found = match self.run_once(trials).await {
                Ok(found) => found,
                Err(error) => {
                    shutdown.run_until_cancelled(sleep(outage.failed(&error))).await;
                    continue;
                }
            };
            outage.over();
            if found != Found::Refused {
                refused_wait = poll_interval;
            }
            let wait = match found {
                Found::Unclaimable if self.engine.unclaimable.is_full() => Some(LONGEST_REFUSED_WAIT),
                Found::FullBatch | Found::Further | Found::Unclaimable => {
                    pace.busy();
                    None
                }
                Found::All(token) => {
                    pace.busy();
                    shutdown.run_until_cancelled(self.wait_beside(token)).await;
                    None
                }
                Found::Suspects => {
                    let settled = in_flight.wait_until(|load| load == Load::default());
                    shutdown.run_until_cancelled(settled).await;
                    None
                }
                Found::Trial(token) => {
                    // One after the other: what is claimed beyond the trials would only be given back.
                    shutdown.run_until_cancelled(in_flight.wait_for_batch(token)).await;
                    (circuit.view().state != CircuitState::Closed).then(|| pace.busy())
                }
                Found::Some | Found::Again => Some(pace.busy()),
                Found::Refused => {
                    refused_wait = (refused_wait * 2).min(LONGEST_REFUSED_WAIT);
                    Some(refused_wait)
                }
                Found::Nothing => {
                    if before == Load::default() {
                        self.depth.backlog_is_over();
                    }
                    Some(pace.idle())
                }
            };
            let rest = (found == Found::Nothing).then(|| wake::rest(started.elapsed(), lease));
            // What was only looked past is not what the delay is between.
            if fixed_delay && found != Found::Further {
                shutdown
                    .run_until_cancelled(sleep(poll_interval.max(rest.unwrap_or_default())))
                    .await;
                continue;
            }
            let Some(wait) = wait.max(rest) else { continue };
            // In a backlog rows may be held back only by their keys' being in flight, and go as soon as those are settled.
            // Counted from before the claim too: what was settled meanwhile may have freed what the claim did not get.
            let claimed = in_flight.load().messages.max(before.messages);
            let settled = in_flight.wait_until(|load| load.messages <= claimed / 2);
            // What was claimed in vain frees nobody.
            let frees_others = found != Found::Refused && self.depth.backlog() && claimed > 0;
            // Whichever comes first; all lead to the same place.
            let woken = async {
                tokio::select! {
                    () = self.engine.doorbell.rung() => {}
                    () = settled, if frees_others => {}
                    () = sleep(wait) => {}
                }
            };
            shutdown.run_until_cancelled(woken).await;
        }
    }

    /// Claims a batch, or no more than so many trials.
    async fn run_once(&mut self, trials: Option<u32>) -> Result<Found, StoreError> {
        let engine = self.engine;
        let config = &engine.config;
        let beside = engine.in_flight.load() != Load::default();
        let look_ahead = self.depth.look_ahead(beside);
        let wanted = trials.map_or(config.batch_size, |trials| trials.min(config.batch_size));
        let room = config.max_in_flight_bytes - engine.in_flight.load().bytes.min(config.max_in_flight_bytes);
        let request = ClaimRequest {
            look_ahead,
            worker: engine.worker,
            token: LeaseToken::new(),
            limit: self.bypass.limit(wanted),
            max_bytes: self.bypass.bytes(room),
            lease: config.lease,
            max_attempts: config.retry.max_attempts,
            ordering: config.ordering.for_claims(),
            scope: config.scope.clone(),
            left_out: engine.unclaimable.left_out(),
        };
        failpoint::pass("before_claim");
        // The lease counts from before the request leaves: the database's count can only start later.
        let sent = Moment::now();
        let (token, limit) = (request.token, request.limit as usize);
        let claim = engine.store.claim(&request).await?;
        let full = claim.messages.len() >= limit.max(config.batch_size as usize);
        if trials.is_none() {
            self.depth.looked(look_ahead, full && !claim.reclaimed);
        }
        if beside {
            let nothing = claim.messages.is_empty() && claim.refused.is_empty();
            // To see that all keys are in flight may take a look at the whole backlog: that must not be most of what is done.
            let pause = config.poll_interval.max(wake::rest(sent.elapsed(), config.lease));
            self.nothing_beside = nothing.then(|| Instant::now() + pause);
        }
        failpoint::pass("after_claim");
        instrument::swept(&claim.died);
        engine.totals.swept(&claim.died);
        let any_unclaimable = note_unclaimable(engine, &claim);
        let Claim {
            messages, reclaimed, ..
        } = claim;
        let others = self.bypass.looked(engine, &messages, messages.len() >= limit);
        if messages.is_empty() {
            return Ok(if any_unclaimable {
                Found::Unclaimable
            } else {
                Found::Nothing
            });
        }
        instrument::claimed(&config.scope.namespace, messages.len(), reclaimed);
        let ids = messages.iter().map(|claimed| claimed.message.id);
        let lease = Arc::new(BatchLease::new(token, sent, config.lease, ids));
        if sent.elapsed() > config.lease / 3 {
            // Else a claim that takes most of its lease would be given back, and claimed again, for ever.
            instrument::slow_claim(&config.scope.namespace, sent.elapsed());
            if let Err(error) = lease.renew(&*engine.store, config.lease).await {
                tracing::warn!(%error, "the leases of a slow claim could not be renewed");
            }
        }
        let again = engine
            .totals
            .postponed_before(messages.iter().map(|claimed| claimed.message.id));
        let bytes = messages
            .iter()
            .map(|claimed| claimed.message.payload.len() as u64)
            .sum();
        let load = Load {
            messages: u32::try_from(messages.len()).unwrap_or(u32::MAX),
            bytes,
        };
        if reclaimed {
            // One of these may have killed its process: let nothing else be in flight with it.
            let alone = engine.in_flight.wait_until(|load| load == Load::default());
            if self.shutdown.run_until_cancelled(alone).await.is_none() {
                lease.revoke();
            }
        }
        engine.in_flight.admit(Arc::clone(&lease), load);
        let dispatch = dispatch::run(Arc::clone(engine), messages, lease, self.outcomes.clone());
        self.publications
            .spawn(engine.supervisor.clone().watch("publishing", dispatch));
        match others {
            Others::Some => {}
            Others::Further => return Ok(Found::Further),
            Others::None => return Ok(Found::Refused),
        }
        // The next claim would most likely find nothing until these are settled; it is tried now and then only.
        let all = self.nothing_beside.is_some_and(|until| Instant::now() < until);
        Ok(match (reclaimed, trials, full) {
            (true, ..) => Found::Suspects,
            (false, Some(_), _) => Found::Trial(token),
            (false, None, _) if again => Found::Again,
            (false, None, true) if all => Found::All(token),
            (false, None, true) => Found::FullBatch,
            (false, None, false) => Found::Some,
        })
    }
}

/// Remembers and tells which rows the database refused to hand out; says whether there are new ones.
fn note_unclaimable(engine: &Engine, claim: &Claim) -> bool {
    let (first, taken) = engine.unclaimable.note(claim);
    instrument::unclaimable(&engine.config.scope.namespace, &first);
    instrument::claimed_after_all(&taken);
    for row in &claim.refused {
        engine.totals.undelivered(row.id, Cause::Failed(&row.error));
    }
    !first.is_empty()
}

/// Waits until a whole batch has room: many small claims would cost more than the wait.
async fn wait_for_room(engine: &Engine) {
    let config = &engine.config;
    let room = |load: Load| {
        load.messages + config.batch_size <= config.max_in_flight && load.bytes < config.max_in_flight_bytes
    };
    engine.in_flight.wait_until(room).await;
}

/// Waits until something may be claimed. If that takes any time, an earlier failure to claim is no longer what keeps the
/// relay from its work, and no claim would come to say so.
async fn without_claims<T>(health: &Health, wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    tokio::select! {
        biased;
        done = &mut wait => return done,
        () = ready(()) => {}
    }
    health.works(CLAIMING);
    wait.await
}

/// Whether a drain tries again after a claim that failed so often before, and since when.
fn may_pass(error: &StoreError, failures: u32, since: Instant) -> bool {
    // Each wait for a lock may be long.
    let waits_too_long = error.kind == StoreErrorKind::Contention && since.elapsed() >= MAX_DRAIN_LOCKS;
    error.kind.is_transient() && failures < MAX_DRAIN_FAILURES && !waits_too_long
}
