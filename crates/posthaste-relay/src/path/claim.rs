//! Takes work from the store and starts its publication, as fast as there is room.

use std::sync::Arc;

use posthaste_core::StoreError;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::guard::clock::Moment;
use crate::guard::in_flight::Load;
use crate::guard::lease::BatchLease;
use crate::path::bypass::{Bypass, Others};
use crate::path::outcome_collector::Outcomes;
use crate::path::scan_budget::ScanBudget;
use crate::path::turn::Line;
use crate::path::{dispatch, failpoint, pace};
use crate::upkeep::instrument;
use crate::upkeep::reclaim_logger::ReclaimLogger;
use crate::upkeep::undelivered::Cause;

/// What a loop that claims is doing, in the words of health checks.
pub(super) const CLAIMING: &str = "claiming";

/// What one claim brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Some,
    FullBatch,
    /// A full batch, beside which nothing else was free a moment ago.
    All(LeaseToken),
    /// Rows of a crashed worker.
    Suspects,
    /// Rows to try the broker with.
    Trial(LeaseToken),
    /// Only rows that are not handed over: their verdicts are known and could not be written, or their destination is
    /// unavailable and the table has no place to say until when.
    Refused,
    /// Only such rows, and the next claim looks past them.
    Further,
    /// Only rows that this drain has put off before.
    Again,
    /// Nothing, but rows that cannot be claimed, and were not known before. There may be others behind them.
    Unclaimable,
}

pub(crate) struct Claimer<'a> {
    pub(super) engine: &'a Arc<Engine>,
    outcomes: Outcomes,
    pub(super) publications: JoinSet<()>,
    pub(super) shutdown: CancellationToken,
    pub(super) scan_budget: ScanBudget,
    bypass: Bypass,
    line: Line,
    reclaim_logger: ReclaimLogger,
    /// Until when a claim beside rows in flight would most likely find nothing that is free, as the last one did.
    nothing_beside: Option<Instant>,
}

impl<'a> Claimer<'a> {
    pub(super) fn new(engine: &'a Arc<Engine>, outcomes: Outcomes) -> Self {
        Self {
            engine,
            outcomes,
            publications: JoinSet::new(),
            shutdown: CancellationToken::new(),
            scan_budget: ScanBudget::new(engine.config.batch_size),
            bypass: Bypass::default(),
            line: Line::default(),
            reclaim_logger: ReclaimLogger::default(),
            nothing_beside: None,
        }
    }
}

impl Claimer<'_> {
    /// Waits until a batch is settled, or until it is worth a look again: others may have come meanwhile.
    pub(super) async fn wait_beside(&self, token: LeaseToken) {
        tokio::select! {
            () = self.engine.notifier.notified() => {}
            () = self.engine.in_flight.wait_for_batch(token) => {}
            () = sleep_until(self.nothing_beside.unwrap_or_else(Instant::now)) => {}
        }
    }

    /// Claims a batch, or no more than so many trials.
    pub(super) async fn run_once(&mut self, trials: Option<u32>) -> Result<Found, StoreError> {
        let number = self.engine.lanes.claim_begins();
        let found = self.claim(number, trials).await;
        // Only now: what it brought is in flight.
        self.engine.lanes.claim_ends();
        found
    }

    async fn claim(&mut self, number: u64, trials: Option<u32>) -> Result<Found, StoreError> {
        let engine = self.engine;
        let config = &engine.config;
        let beside = engine.in_flight.load() != Load::default();
        let scan_limit = self.scan_budget.scan_limit(beside);
        let wanted = trials.map_or(config.batch_size, |trials| trials.min(config.batch_size));
        let room = config.max_in_flight_bytes - engine.in_flight.load().bytes.min(config.max_in_flight_bytes);
        let mut request = ClaimRequest {
            scan_limit,
            worker: engine.worker,
            token: LeaseToken::new(),
            limit: self.bypass.limit(wanted),
            max_bytes: self.bypass.bytes(room),
            lease: config.lease,
            max_attempts: config.retry.max_attempts,
            ordering: config.ordering.for_claims(),
            scope: config.scope.clone(),
            left_out: engine.unclaimable.left_out(),
            pipelined: engine.lanes.is_pipelined(),
        };
        let tried = trials.map_or_else(Vec::new, |_| engine.blame.tried());
        request.left_out.extend(&tried);
        engine.pulses.claiming.works();
        failpoint::pass("before_claim");
        // The lease counts from before the request leaves: the database's count can only start later.
        let sent = Moment::now();
        let (token, limit) = (request.token, request.limit as usize);
        let claim = ask(engine, &request, sent).await?;
        let full = claim.messages.len() >= limit.max(config.batch_size as usize);
        if trials.is_none() {
            self.scan_budget.scanned(scan_limit, full && !claim.reclaimed);
        }
        if beside {
            let nothing = claim.messages.is_empty() && claim.refused.is_empty();
            // To see that all keys are in flight may take a look at the whole backlog: that must not be most of what is
            // done.
            let pause = config.poll_interval.max(pace::rest(sent.elapsed(), config.lease));
            self.nothing_beside = nothing.then(|| Instant::now() + pause);
        }
        failpoint::pass("after_claim");
        instrument::swept(&config.scope.namespace, &claim.died);
        engine.net.swept(&claim.died);
        engine.totals.swept(&claim.died);
        let any_unclaimable = note_unclaimable(engine, &claim);
        let Claim {
            messages, reclaimed, ..
        } = claim;
        self.reclaim_logger.claimed(messages.len(), reclaimed);
        let others = self
            .bypass
            .looked(engine, &messages, messages.len() >= limit, trials.is_some());
        if messages.is_empty() {
            return Ok(if any_unclaimable {
                Found::Unclaimable
            } else if tried.is_empty() {
                Found::Nothing
            } else {
                engine.blame.all_were_tried();
                Found::Further
            });
        }
        instrument::claimed(&config.scope.namespace, messages.len(), reclaimed);
        let ids = messages.iter().map(|claimed| claimed.message.id);
        let mut lease = BatchLease::new(token, sent, config.lease, ids);
        lease.claim = number;
        let lease = Arc::new(lease);
        if sent.elapsed() > config.lease / 3 {
            // Else a claim that takes most of its lease would be given back, and claimed again, forever.
            instrument::slow_claim(&config.scope.namespace, sent.elapsed());
            renew(engine, &lease).await;
        }
        let again = engine
            .totals
            .postponed_before(messages.iter().map(|claimed| claimed.message.id));
        let load = load_of(&messages);
        if reclaimed {
            // One of these may have killed its process: let nothing else be in flight with it.
            engine.pulses.claiming.waits("what is in flight to be settled");
            let alone = engine.in_flight.wait_until(|load| load == Load::default());
            if self.shutdown.run_until_cancelled(alone).await.is_none() {
                lease.revoke();
            }
        }
        engine.in_flight.admit(Arc::clone(&lease), load);
        let turn = engine.lanes.is_pipelined().then(|| self.line.join());
        let outcomes = self.outcomes.clone();
        let dispatch = dispatch::run(Arc::clone(engine), messages, reclaimed, lease, outcomes, turn);
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

/// Asks the database for messages, and takes note of its answer.
async fn ask(engine: &Engine, request: &ClaimRequest, sent: Moment) -> Result<Claim, StoreError> {
    let claim = engine.store.claim(request).await?;
    instrument::claim_answered(&engine.config.scope.namespace, sent.elapsed(), claim.messages.len());
    Ok(claim)
}

async fn renew(engine: &Engine, lease: &BatchLease) {
    engine.pulses.claiming.works();
    if let Err(error) = lease.renew(&*engine.store, engine.config.lease).await {
        tracing::warn!(%error, "the leases of a slow claim could not be renewed");
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
pub(super) async fn wait_for_room(engine: &Engine) {
    let config = &engine.config;
    let room = |load: Load| {
        load.messages + config.batch_size <= config.max_in_flight && load.bytes < config.max_in_flight_bytes
    };
    loop {
        engine.in_flight.wait_until(room).await;
        let Some(until) = engine.silence.crowded_until() else {
            return;
        };
        let not_crowded = |load| room(load) && engine.silence.crowded_until().is_none();
        let _ = timeout_at(until, engine.in_flight.wait_until(not_crowded)).await;
    }
}

/// What a claim brought.
fn load_of(messages: &[ClaimedMessage]) -> Load {
    Load {
        messages: u32::try_from(messages.len()).unwrap_or(u32::MAX),
        bytes: messages
            .iter()
            .map(|claimed| claimed.message.payload.len() as u64)
            .sum(),
    }
}
