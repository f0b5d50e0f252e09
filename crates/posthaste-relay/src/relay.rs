//! The relay: wires the loops together, starts them and stops them cleanly.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::publisher::LaneOrder;
use posthaste_core::readable::Readable;
use posthaste_core::store::{StoreErrorKind, WorkerId};
use posthaste_core::{Publisher, RelayStore};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::RelayConfig;
use crate::engine::Engine;
use crate::error::RelayError;
use crate::guard::blame::Blame;
use crate::guard::calls::Calls;
use crate::guard::circuit::Circuit;
use crate::guard::destinations::Destinations;
use crate::guard::lanes::StoppedLanes;
use crate::guard::lead::Lead;
use crate::guard::refusals::Refusals;
use crate::guard::silence::Silence;
use crate::guard::timed::TimedStore;
use crate::guard::unclaimable::Unclaimable;
use crate::net::{Net, SafetyNet, Tasks};
use crate::path::send_span::SendSpans;
use crate::path::settle::{self, WaitFor};
use crate::path::{self, DrainError, Until};
use crate::report::RelayReport;
use crate::upkeep::failure_log::FailureLog;
use crate::upkeep::health::{Health, Running};
use crate::upkeep::pulse::Pulses;
use crate::upkeep::supervisor::Supervisor;
use crate::upkeep::totals::Totals;
use crate::upkeep::waiting::Waiting;
use crate::upkeep::wake::LocalNotifier;
use crate::upkeep::{announce, election, instrument, janitor, letters, sampler, start};

/// Delivers the messages of one outbox to one publisher.
///
/// Any number of relays may serve the same outbox, in one process or many; they share its messages, unless
/// [`RelayConfig::exclusive`] says that one does the work and the others stand by.
pub struct Relay {
    store: Arc<dyn RelayStore>,
    publisher: Arc<dyn Publisher>,
    config: RelayConfig,
    notifier: LocalNotifier,
    health: Health,
    safety_net: SafetyNet,
}

impl Relay {
    /// A relay with default settings.
    pub fn new(store: impl RelayStore, publisher: impl Publisher) -> Self {
        Self {
            store: Arc::new(store),
            publisher: Arc::new(publisher),
            config: RelayConfig::default(),
            notifier: LocalNotifier::default(),
            health: Health::default(),
            safety_net: SafetyNet::default(),
        }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn config(mut self, config: RelayConfig) -> Self {
        self.config = config;
        self
    }

    /// Says where dead letters go that the database does not take. Defaults to nowhere: they are remembered and tried again.
    #[must_use]
    pub fn safety_net(mut self, safety_net: SafetyNet) -> Self {
        self.safety_net = safety_net;
        self
    }

    /// A notifier for producers in this process. Ring it after a commit.
    pub fn notifier(&self) -> LocalNotifier {
        self.notifier.clone()
    }

    /// Whether the relay can do its work, for health checks. Ask for it before the relay runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until the token fires, then stops taking work, gives back what was not yet handed to the publisher, and
    /// waits up to `shutdown_grace` for the answers to what was, as long again for them to be written, and two seconds
    /// for its deregistration.
    ///
    /// A store that is unavailable is waited for; one that can never work (no tables, wrong password) is an error at
    /// the start.
    pub async fn run_until(self, shutdown: CancellationToken) -> Result<RelayReport, RelayError> {
        self.run(Until::Cancelled(shutdown)).await
    }

    /// Delivers what is due and returns. Messages that wait for a retry stay behind; [`RelayReport::undelivered`] says
    /// how many were due and are not delivered, [`RelayReport::remaining`] how many it could not even claim.
    ///
    /// If the circuit opens it does not wait for the broker but ends with [`RelayError::BrokerUnavailable`]; what was not
    /// delivered stays in the outbox. So it ends at a broker that throttles for more than five seconds, or again
    /// without having taken anything since. If only one relay may be active and another one is, it ends with
    /// [`RelayError::StandingBy`]; if what became of messages could not be written, with [`RelayError::Unsettled`].
    /// Rows that another transaction has locked are waited for, but not for more than ten seconds.
    pub async fn drain(self) -> Result<RelayReport, RelayError> {
        self.run(Until::Idle).await
    }

    async fn run(mut self, until: Until) -> Result<RelayReport, RelayError> {
        self.config.validate()?;
        let store = TimedStore::new(self.store, self.config.store_timeout);
        let (calls, pulses) = (store.calls(), Pulses::new(&store.limits()));
        let store: Arc<dyn RelayStore> = Arc::new(store);
        let requirements = store.requirements();
        self.config.validate_for(&*store)?;
        instrument::register(&self.config.scope);
        match store.check_for(&self.config.scope).await {
            Err(error) if error.kind == StoreErrorKind::SomeRows => {
                tracing::error!(%error, "some messages cannot be served as they are");
            }
            Err(error) if error.kind == StoreErrorKind::DeathsRefused && self.safety_net.has_file() => {
                tracing::error!(%error, "dead letters go to the file of the safety net until the table takes them");
            }
            Err(error) if !error.kind.is_transient() => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "the outbox could not be checked; trying to serve it all the same"),
            Ok(()) => {}
        }
        let capabilities = self.publisher.capabilities();
        self.config.fit(requirements, &capabilities);
        self.config.keep_to(&capabilities);
        // Where a claim is settled as a whole, or tried until it is through, it has its lanes for itself.
        let pipelined = capabilities.order == LaneOrder::Pipelined
            && self.config.ordering.per_key
            && !requirements.batch_settlement
            && !requirements.in_memory_attempts;
        let all_destinations = self.publisher.destinations();
        let (net, nets) = Net::new(self.safety_net, &self.config.scope.namespace, requirements);
        let engine = Arc::new(Engine {
            requirements,
            store,
            send_spans: SendSpans::new(self.publisher.name(), &self.config.scope.namespace),
            publisher: self.publisher,
            worker: WorkerId::new(),
            in_flight: Arc::default(),
            refusals: Refusals::new(&self.config.scope.namespace, requirements),
            net: Arc::new(net),
            unclaimable: Unclaimable::new(&self.config.scope.namespace, matches!(until, Until::Idle)),
            blame: Blame::default(),
            circuit: Arc::new(Circuit::new(self.config.breaker.clone(), &self.config.scope.namespace)),
            destinations: Arc::new(
                Destinations::new(
                    self.config.breaker.clone(),
                    self.config.retry.clone(),
                    self.config.max_in_flight,
                    &self.config.scope.namespace,
                )
                .with_all(all_destinations),
            ),
            silence: Silence::new(self.config.max_in_flight, self.config.max_in_flight_bytes),
            lanes: StoppedLanes::new(pipelined),
            lead: Arc::new(Lead::new(&self.config)),
            config: self.config,
            notifier: self.notifier,
            totals: Totals::new(matches!(until, Until::Idle)),
            waiting: Waiting::default(),
            failure_log: FailureLog::default(),
            health: self.health,
            pulses: Arc::new(pulses),
            supervisor: Supervisor::default(),
        });
        if let Some((spool, _)) = &nets.file {
            letters::load(&engine, spool).await;
        }
        engine.health.started(Running {
            since: Instant::now(),
            worker: engine.worker.as_uuid().to_string(),
            namespace: engine.config.scope.namespace.clone(),
            publisher: engine.publisher.name().to_owned(),
            calls: Arc::clone(&calls),
            circuit: Arc::clone(&engine.circuit),
            destinations: Arc::clone(&engine.destinations),
            lead: Arc::clone(&engine.lead),
            in_flight: Arc::clone(&engine.in_flight),
            pulses: Arc::clone(&engine.pulses),
            supervisor: engine.supervisor.clone(),
        });
        tracing::info!(
            worker = %engine.worker.as_uuid(), publisher = engine.publisher.name(),
            namespace = engine.config.scope.namespace, "relay started"
        );
        let publisher = Arc::clone(&engine.publisher);
        let ended = run_loops(engine, calls, until, nets).await;
        if timeout(CLOSE_TIMEOUT, publisher.close()).await.is_err() {
            tracing::warn!(
                "the publisher {} did not close within {}",
                publisher.name(),
                Readable(CLOSE_TIMEOUT)
            );
        }
        match &ended {
            Ok(report) => report.tell(),
            Err(RelayError::BrokerUnavailable { report, .. } | RelayError::Unsettled { report }) => report.tell(),
            Err(_) => {}
        }
        ended
    }
}

/// How long a publisher may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

async fn run_loops(
    engine: Arc<Engine>,
    calls: Arc<Calls>,
    until: Until,
    nets: Tasks,
) -> Result<RelayReport, RelayError> {
    let background = CancellationToken::new();
    let draining = matches!(until, Until::Idle);
    // However this function is left, also by being dropped, the loops beside the road end.
    let _stop_background = background.clone().drop_guard();
    let (outcomes, reported) = mpsc::unbounded_channel();
    let watch = &engine.supervisor;
    start::nets(&engine, nets, &background);
    // A drain has waited for locks when it ends.
    let in_the_end = if draining { WaitFor::Nobody } else { WaitFor::Locks };
    let settle = settle::run(Arc::clone(&engine), reported, in_the_end);
    let mut settling = tokio::spawn(watch.clone().watch("settling", settle));
    let keep = janitor::keep_leases(Arc::clone(&engine), background.clone());
    let keeping = tokio::spawn(watch.clone().watch("renewing leases", keep));
    let sample = sampler::run(Arc::clone(&engine), background.clone());
    tokio::spawn(watch.clone().watch("sampling", sample));
    let mut presence = match until {
        Until::Cancelled(_) => start::upkeep(&engine, calls, &background).await,
        Until::Idle => JoinSet::new(),
    };
    if matches!(until, Until::Idle) {
        // A drain does not stay until the janitor would.
        janitor::recover_once(&engine, &mut HashSet::new()).await?;
    }
    if let Some(lease) = engine.lead.lease {
        // A drain has to know before it begins.
        if matches!(until, Until::Idle) {
            election::elect_once(&engine, lease).await?;
        }
        let keep = election::keep(Arc::clone(&engine), lease, background.clone());
        presence.spawn(watch.clone().watch("asking for the lead", keep));
    }
    // A death that the table refuses keeps no others from being delivered, but a drain reports it at the end.
    let unswept = draining && janitor::sweep_once(&engine).await.is_err();

    let (publications, drain_error) = tokio::select! {
        ended = path::deliver(&engine, outcomes, until) => ended,
        // To go on without one of its tasks would be to renew leases and deliver nothing, or the like.
        () = watch.broken() => (JoinSet::new(), Some(DrainError::Panicked)),
    };
    engine.health.stopping();
    let grace = match drain_error {
        Some(DrainError::Panicked) => Duration::ZERO,
        _ => engine.config.shutdown_grace,
    };
    engine.in_flight.revoke_all();
    let answered = timeout(grace, engine.in_flight.wait_for_answers()).await;
    let abandoned = engine.in_flight.unanswered();
    if answered.is_err() {
        tell_abandoned(&engine, abandoned, grace);
    }
    // Publications hold the senders of outcomes: with them gone the settler finishes and ends.
    drop(publications);
    // The database has had its chance if it is what ended the drain.
    let grace = match drain_error {
        Some(DrainError::Store(_)) => Duration::ZERO,
        _ => grace,
    };
    if timeout(grace, &mut settling).await.is_err() {
        settling.abort();
        // What it still moves from one count to the other would be in both.
        drop(settling.await);
    }
    engine.failure_log.summarise(true);
    let unsettled = engine.in_flight.load().messages.saturating_sub(abandoned);
    if unsettled > 0 {
        tell_unsettled(&engine, unsettled);
    }
    engine.net.close().await;
    keeping.abort();
    background.cancel();
    if presence.is_empty() {
        announce::close_store(&engine).await;
    } else {
        announce::deregister(&engine, presence).await;
    }
    let (refused, busy) = (engine.refusals.count(), engine.refusals.busy());
    let report = engine.totals.report(abandoned, unsettled, refused, busy);
    let all_written = report.refused + report.busy + report.unsettled == 0 && !engine.totals.lost_any();
    if draining && drain_error.is_none() && !all_written {
        return Err(RelayError::Unsettled {
            report: Box::new(report),
        });
    }
    match drain_error {
        Some(drain_error) => Err(because(&engine, drain_error, report)),
        // It may have met a lock that is gone by now.
        None if unswept => match janitor::sweep_once(&engine).await {
            Ok(_) => Ok(report),
            Err(error) => Err(error.into()),
        },
        None => Ok(report),
    }
}

/// The error of a run that something kept from going on.
fn because(engine: &Engine, drain_error: DrainError, report: RelayReport) -> RelayError {
    let report = Box::new(report);
    match drain_error {
        // That messages were published without a trace says more than why no others were.
        DrainError::Store(error) if report.busy > 0 || report.unsettled > 0 => {
            tracing::error!(%error, "draining ended early");
            RelayError::Unsettled { report }
        }
        DrainError::Store(error) => error.into(),
        DrainError::CircuitOpen => RelayError::BrokerUnavailable {
            reason: engine.circuit.view().reason.unwrap_or_default(),
            report,
        },
        DrainError::Paused(reason) => RelayError::BrokerUnavailable { reason, report },
        DrainError::Panicked => RelayError::Panicked {
            task: engine.supervisor.culprit().unwrap_or("a task"),
        },
        DrainError::Superseded => RelayError::StandingBy {
            leader: engine.lead.other().unwrap_or_else(|| "of another process".to_owned()),
        },
    }
}

fn tell_abandoned(engine: &Engine, abandoned: u32, grace: Duration) {
    instrument::abandoned(&engine.config.scope.namespace, abandoned);
    tracing::warn!(
        "the publisher {} gave no answer for {abandoned} messages within relay.shutdown_grace = {}; they are \
         delivered again after their lease",
        engine.publisher.name(),
        Readable(grace)
    );
}

fn tell_unsettled(engine: &Engine, unsettled: u32) {
    instrument::abandoned(&engine.config.scope.namespace, unsettled);
    tracing::warn!(
        "the database gave no answer to the outcomes of {unsettled} messages, which the publisher {} has answered for; \
         unless it has taken them all the same, they are delivered again after their lease",
        engine.publisher.name()
    );
}
