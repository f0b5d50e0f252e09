//! Starts the loops beside the message road, each under watch.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::guard::calls::Calls;
use crate::net::{Tasks, alerts};
use crate::upkeep::{announce, janitor, letters, probe, wake, watch};

/// Those that keep dead letters and send alerts.
pub(crate) fn nets(engine: &Arc<Engine>, nets: Tasks, stop: &CancellationToken) {
    let supervisor = &engine.supervisor;
    if let Some((spool, orders)) = nets.file {
        let keep = letters::run(Arc::clone(engine), spool, orders, stop.clone());
        tokio::spawn(supervisor.clone().watch("keeping dead letters", keep));
    }
    if let Some((alerter, orders)) = nets.alerts {
        let alert = alerts::run(alerter, orders, stop.clone());
        tokio::spawn(supervisor.clone().watch("sending alerts", alert));
    }
}

/// Those of a relay that stays. Those that are returned are waited for at the end: what they have asked for is given back
/// after their last word.
pub(crate) async fn upkeep(engine: &Arc<Engine>, calls: Arc<Calls>, stop: &CancellationToken) -> JoinSet<()> {
    let supervisor = &engine.supervisor;
    let mut presence = JoinSet::new();
    let clean = janitor::clean(Arc::clone(engine), stop.clone());
    presence.spawn(supervisor.clone().watch("cleaning up", clean));
    let announce = announce::run(Arc::clone(engine), stop.clone());
    presence.spawn(supervisor.clone().watch("announcing this relay", announce));
    let recover = janitor::recover(Arc::clone(engine), stop.clone());
    tokio::spawn(supervisor.clone().watch("recovering stalled messages", recover));
    let probe = probe::run(Arc::clone(engine), calls, stop.clone());
    tokio::spawn(supervisor.clone().watch("asking for the database", probe));
    let look = watch::run(Arc::clone(engine), stop.clone());
    tokio::spawn(supervisor.clone().watch("watching the tasks", look));
    if !engine.config.fixed_delay
        && let Some(source) = engine.store.listener().await
    {
        let forward = wake::forward(source, engine.notifier.clone(), stop.clone());
        tokio::spawn(supervisor.clone().watch("waiting for wake-ups", forward));
    }
    presence
}
