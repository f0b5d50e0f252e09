//! What the loops share.

use std::sync::Arc;

use posthaste_core::store::{StoreRequirements, WorkerId};
use posthaste_core::{Publisher, RelayStore};

use crate::config::RelayConfig;
use crate::guard::blame::Blame;
use crate::guard::circuit::Circuit;
use crate::guard::destinations::Destinations;
use crate::guard::in_flight::InFlight;
use crate::guard::lanes::StoppedLanes;
use crate::guard::lead::Lead;
use crate::guard::refusals::Refusals;
use crate::guard::silence::Silence;
use crate::guard::unclaimable::Unclaimable;
use crate::net::Net;
use crate::path::send_span::SendSpans;
use crate::upkeep::failure_log::FailureLog;
use crate::upkeep::health::Health;
use crate::upkeep::pulse::Pulses;
use crate::upkeep::supervisor::Supervisor;
use crate::upkeep::totals::Totals;
use crate::upkeep::waiting::Waiting;
use crate::upkeep::wake::LocalNotifier;

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn RelayStore>,
    pub(crate) requirements: StoreRequirements,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) config: RelayConfig,
    pub(crate) worker: WorkerId,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) refusals: Refusals,
    pub(crate) net: Arc<Net>,
    pub(crate) unclaimable: Unclaimable,
    pub(crate) blame: Blame,
    pub(crate) circuit: Arc<Circuit>,
    pub(crate) destinations: Arc<Destinations>,
    pub(crate) silence: Silence,
    pub(crate) lanes: StoppedLanes,
    pub(crate) lead: Arc<Lead>,
    pub(crate) notifier: LocalNotifier,
    pub(crate) totals: Totals,
    pub(crate) waiting: Waiting,
    pub(crate) failure_log: FailureLog,
    pub(crate) health: Health,
    pub(crate) pulses: Arc<Pulses>,
    pub(crate) send_spans: SendSpans,
    pub(crate) supervisor: Supervisor,
}
