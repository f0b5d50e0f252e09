//! Writes verdicts back, as many at once as have come in.

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::Settlement;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use crate::engine::{Engine, Reported};
use crate::failpoint;
use crate::instrument;
use crate::outage::Outage;

/// Most verdicts of one statement.
const MOST: usize = 1_000;

/// Settles until every sender of verdicts is gone.
pub(crate) async fn run(engine: Arc<Engine>, mut reported: UnboundedReceiver<Vec<Reported>>) {
    let mut outage = Outage::new("settling");
    // Claims that are settled as a whole are settled apart: each is a transaction, and one that fails would have those
    // that did not settled again.
    let most = if engine.terms.settle_together { 1 } else { MOST };
    let mut pieces = Vec::with_capacity(most);
    // While one statement runs the next verdicts gather: batches grow with the load, without a timer.
    while reported.recv_many(&mut pieces, most).await > 0 {
        run_once(&engine, pieces.drain(..).flatten().collect(), &mut outage).await;
    }
}

async fn run_once(engine: &Engine, reported: Vec<Reported>, outage: &mut Outage) {
    let settlement = |Reported { ticket, verdict, .. }: &Reported| Settlement {
        id: ticket.id,
        token: ticket.token,
        verdict: verdict.clone(),
        version: ticket.version,
    };
    let settlements: Vec<Settlement> = reported.iter().map(settlement).collect();
    failpoint::pass("before_settle");
    let lost: HashSet<MessageId> = loop {
        // The outcomes are facts: they are written however long the database is away. If the leases are gone by then
        // the answer says so.
        match engine.store.settle(&settlements).await {
            Ok(settled) => break settled.lost.into_iter().collect(),
            Err(error) => sleep(outage.failed(&error)).await,
        }
    };
    outage.over();
    failpoint::pass("after_settle");
    engine
        .in_flight
        .finish(reported.iter().map(|reported| &reported.ticket));
    for settlement in &settlements {
        if lost.contains(&settlement.id) {
            engine.totals.lease_lost(settlement.id);
        } else {
            engine.totals.settled(settlement.id, &settlement.verdict);
        }
    }
    instrument::settled(&engine.config.scope.namespace, &reported, &lost);
}
