//! Turns outcomes into verdicts and writes them back, as many at once as have come in.

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{Settlement, decide};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use crate::engine::{Engine, Reported};
use crate::failpoint;
use crate::instrument;
use crate::outage::Outage;

/// Most verdicts of one statement.
const MOST: usize = 1_000;

/// Settles until every sender of outcomes is gone.
pub(crate) async fn run(engine: Arc<Engine>, mut reported: UnboundedReceiver<Reported>) {
    let mut outage = Outage::new("settling");
    let mut batch = Vec::with_capacity(MOST);
    // While one statement runs the next outcomes gather: batches grow with the load, without a timer.
    while reported.recv_many(&mut batch, MOST).await > 0 {
        run_once(&engine, std::mem::take(&mut batch), &mut outage).await;
    }
}

async fn run_once(engine: &Engine, reported: Vec<Reported>, outage: &mut Outage) {
    let settlements: Vec<Settlement> = reported
        .iter()
        .map(|Reported { ticket, outcome, away }| {
            let retry = engine.config.retry.for_row(ticket.max_attempts);
            let verdict = decide(outcome.clone(), ticket.attempts, &retry, *away, rand::random());
            Settlement {
                id: ticket.id,
                token: ticket.token,
                verdict,
                version: ticket.version,
            }
        })
        .collect();
    failpoint::pass("before_settle");
    let lost: HashSet<MessageId> = loop {
        // The outcomes are facts: they are written however long the database is away. If the leases are gone by then
        // the answer says so.
        match engine.store.settle(&settlements).await {
            Ok(lost) => break lost.into_iter().collect(),
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
            engine.totals.lease_lost();
        } else {
            engine.totals.settled(&settlement.verdict);
        }
    }
    instrument::settled(&engine.config.scope.namespace, &reported, &settlements, &lost);
}
