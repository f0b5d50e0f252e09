//! What the loops share.

use std::sync::Arc;

use posthaste_core::store::{Terms, WorkerId};
use posthaste_core::{Publisher, RelayStore};

use crate::circuit::Circuit;
use crate::config::RelayConfig;
use crate::destinations::Destinations;
use crate::health::Health;
use crate::in_flight::InFlight;
use crate::lead::Lead;
use crate::refusals::Refusals;
use crate::supervisor::Supervisor;
use crate::totals::Totals;
use crate::unclaimable::Unclaimable;
use crate::waiting::Waiting;
use crate::wake::LocalDoorbell;

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn RelayStore>,
    pub(crate) terms: Terms,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) config: RelayConfig,
    pub(crate) worker: WorkerId,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) refusals: Refusals,
    pub(crate) unclaimable: Unclaimable,
    pub(crate) circuit: Arc<Circuit>,
    pub(crate) destinations: Destinations,
    pub(crate) lead: Arc<Lead>,
    pub(crate) doorbell: LocalDoorbell,
    pub(crate) totals: Totals,
    pub(crate) waiting: Waiting,
    pub(crate) health: Health,
    pub(crate) supervisor: Supervisor,
}
