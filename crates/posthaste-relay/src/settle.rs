//! Writes verdicts back, as many at once as have come in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::store::{Settled, StoreErrorKind};
use posthaste_core::{MessageId, StoreError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until};

use crate::engine::{Engine, Reported};
use crate::failpoint;
use crate::instrument;
use crate::outage::Outage;
use crate::refusals::Hold;

/// Most verdicts of one statement.
const MOST: usize = 1_000;

/// Settles until every sender of verdicts is gone.
pub(crate) async fn run(engine: Arc<Engine>, mut reported: UnboundedReceiver<Vec<Reported>>) {
    // Claims that are settled as a whole are settled apart: each is a transaction, and one that fails would have those
    // that did not settled again.
    let most = if engine.terms.settle_together { 1 } else { MOST };
    let mut settler = Settler {
        outage: Outage::new("settling", &engine.health),
        engine,
    };
    let mut pieces = Vec::with_capacity(most);
    loop {
        let retry = settler.engine.refusals.next_retry();
        tokio::select! {
            // While one statement runs the next verdicts gather: batches grow with the load, without a timer.
            received = reported.recv_many(&mut pieces, most) => {
                if received == 0 {
                    break;
                }
                settler.settle(pieces.drain(..).flatten().collect()).await;
            }
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => settler.try_again(false).await,
        }
    }
    settler.try_again(true).await;
}

struct Settler {
    engine: Arc<Engine>,
    outage: Outage,
}

/// What came of one round of settling.
#[derive(Default)]
struct Round {
    applied: usize,
    /// Those that were refused for the first time, and why.
    to_tell: Vec<(Reported, String)>,
}

impl Settler {
    /// Writes verdicts that have just come in.
    async fn settle(&mut self, reported: Vec<Reported>) {
        failpoint::pass("before_settle");
        let mut round = Round::default();
        // If one verdict keeps the others from being written, it is found by halving, and the others are.
        let mut groups = vec![reported];
        while let Some(mut group) = groups.pop() {
            match self.write(&group).await {
                Ok(settled) => self.settled(group, settled, &mut round),
                Err(_) if group.len() > 1 && !self.engine.terms.settle_together => {
                    let second = group.split_off(group.len() / 2);
                    groups.extend([second, group]);
                }
                Err(error) => {
                    let hold = self.hold();
                    for reported in group {
                        self.refused(reported, &error, hold, &mut round);
                    }
                }
            }
        }
        failpoint::pass("after_settle");
        // Those that were refused before say nothing about the others.
        self.engine.refusals.round(round.applied, round.to_tell.len());
        instrument::refused(&self.engine.config.scope.namespace, &round.to_tell);
    }

    /// Tries verdicts again that were refused, each alone.
    async fn try_again(&mut self, stopping: bool) {
        let engine = Arc::clone(&self.engine);
        for reported in engine.refusals.retries(stopping) {
            let (id, ticket) = (reported.ticket.id, reported.ticket.clone());
            let group = [reported];
            let written = if stopping {
                // A relay that stops does not wait for a database that is away.
                engine.store.settle(&settlements(&group)).await
            } else {
                self.write(&group).await
            };
            match written {
                Ok(answer) if answer.refused.is_empty() => {
                    engine.in_flight.let_go(&ticket);
                    let lost = answer.lost.contains(&id);
                    self.count(&group, &answer.lost.into_iter().collect(), &mut Round::default());
                    engine.refusals.forget(id);
                    if !lost {
                        instrument::taken_after_all(&group[0]);
                        engine.refusals.round(1, 0);
                        engine.refusals.hurry();
                    }
                }
                Ok(_) | Err(_) => {
                    let [reported] = group;
                    engine.refusals.remember(reported, Hold::Leased);
                }
            }
        }
    }

    /// Writes verdicts as soon as the database can be reached; what it refuses then is an error.
    async fn write(&mut self, group: &[Reported]) -> Result<Settled, StoreError> {
        let settlements = settlements(group);
        let mut again = false;
        loop {
            // The outcomes are facts: they are written however long the database is away. If the leases are gone by then
            // the answer says so.
            match self.engine.store.settle(&settlements).await {
                Ok(mut settled) => {
                    self.outage.over();
                    if again {
                        self.leave_out_written(group, &mut settled);
                    }
                    return Ok(settled);
                }
                // A database that cannot be written says nothing about these verdicts.
                Err(error) if error.kind.is_transient() || error.kind == StoreErrorKind::ReadOnly => {
                    sleep(self.outage.failed(&error)).await;
                    again = true;
                }
                Err(error) => {
                    self.outage.over();
                    return Err(error);
                }
            }
        }
    }

    /// A write that seemed to fail may have been made, and only its answer lost. Then its rows are no longer ours, which is
    /// no loss: nobody else can have taken them while their lease held. (Where a row has a version, somebody may have changed
    /// it.)
    fn leave_out_written(&self, group: &[Reported], settled: &mut Settled) {
        if self.engine.terms.settle_together || settled.lost.is_empty() {
            return;
        }
        let written = |Reported { ticket, .. }: &&Reported| {
            ticket.version.is_none() && self.engine.in_flight.held_throughout(ticket)
        };
        let written: HashSet<MessageId> = group
            .iter()
            .filter(written)
            .map(|reported| reported.ticket.id)
            .collect();
        settled.lost.retain(|id| {
            let is_written = written.contains(id);
            if is_written {
                tracing::debug!(%id, "its verdict was written by an earlier try whose answer was lost");
            }
            !is_written
        });
    }

    fn settled(&self, group: Vec<Reported>, settled: Settled, round: &mut Round) {
        let lost: HashSet<MessageId> = settled.lost.into_iter().collect();
        let mut refused: HashMap<MessageId, StoreError> = settled
            .refused
            .into_iter()
            .map(|refused| (refused.id, refused.error))
            .collect();
        let (refusals, rest): (Vec<_>, Vec<_>) = group
            .into_iter()
            .partition(|reported| refused.contains_key(&reported.ticket.id));
        for reported in refusals {
            if let Some(error) = refused.remove(&reported.ticket.id) {
                self.refused(reported, &error, Hold::Free, round);
            }
        }
        let engine = &self.engine;
        // Whoever waits until nothing is in flight may look at the totals next.
        self.count(&rest, &lost, round);
        engine.in_flight.finish(rest.iter().map(|reported| &reported.ticket));
        for reported in rest {
            let id = reported.ticket.id;
            if lost.contains(&id) {
                if engine.terms.settle_together && reported.verdict == Verdict::Delivered {
                    // The row is free, and the event is out: it does not have to go out again.
                    engine.refusals.remember(reported, Hold::Lost);
                } else {
                    engine.refusals.forget(id);
                }
            } else if reported.verdict != Verdict::Released && engine.refusals.forget(id) {
                instrument::taken_after_all(&reported);
                engine.refusals.hurry();
            }
        }
    }

    fn count(&self, group: &[Reported], lost: &HashSet<MessageId>, round: &mut Round) {
        let totals = &self.engine.totals;
        for Reported { ticket, verdict, .. } in group {
            if lost.contains(&ticket.id) {
                totals.lease_lost(ticket.id);
            } else {
                totals.settled(ticket.id, verdict);
                round.applied += usize::from(*verdict != Verdict::Released);
            }
        }
        instrument::settled(&self.engine.config.scope.namespace, group, lost);
    }

    fn refused(&self, reported: Reported, error: &StoreError, hold: Hold, round: &mut Round) {
        let engine = &self.engine;
        engine.totals.undelivered(reported.ticket.id, false);
        if hold == Hold::Leased && reported.verdict != Verdict::Released {
            // Its lease goes on being renewed, but it takes no place from others. One that was only to be given back is free
            // when its lease is over: nothing is known of it, and it is still to be published.
            engine.in_flight.set_aside(&reported.ticket);
        } else {
            engine.in_flight.finish(std::iter::once(&reported.ticket));
        }
        if engine.refusals.remember(reported.clone(), hold) {
            round.to_tell.push((reported, error.to_string()));
        }
    }

    /// Where rows are whose verdicts were refused by a call that failed as a whole.
    fn hold(&self) -> Hold {
        if self.engine.terms.settle_together {
            Hold::Free
        } else {
            Hold::Leased
        }
    }
}

fn settlements(group: &[Reported]) -> Vec<Settlement> {
    let settlement = |Reported { ticket, verdict, .. }: &Reported| Settlement {
        id: ticket.id,
        token: ticket.token,
        verdict: verdict.clone(),
        version: ticket.version,
    };
    group.iter().map(settlement).collect()
}
