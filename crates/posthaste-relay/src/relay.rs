//! The relay: wires the loops together, starts them and stops them cleanly.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::store::{StoreErrorKind, WorkerId};
use posthaste_core::{Publisher, RelayStore, StoreError};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::circuit::Circuit;
use crate::claim::{self, Hindered, Until};
use crate::config::{InvalidConfig, RelayConfig};
use crate::destinations::Destinations;
use crate::engine::{Engine, Totals};
use crate::health::Health;
use crate::in_flight::InFlight;
use crate::lead::{self, Lead};
use crate::refusals::Refusals;
use crate::settle::WaitFor;
use crate::supervisor::Supervisor;
use crate::timed::TimedStore;
use crate::unclaimable::Unclaimable;
use crate::waiting::Waiting;
use crate::wake::{self, LocalDoorbell};
use crate::{announce, instrument, janitor, settle};

/// Delivers the messages of one outbox to one publisher.
///
/// Any number of relays may serve the same outbox, in one process or many; they share its messages, unless
/// [`RelayConfig::exclusive`] says that one does the work and the others stand by.
pub struct Relay {
    store: Arc<dyn RelayStore>,
    publisher: Arc<dyn Publisher>,
    config: RelayConfig,
    doorbell: LocalDoorbell,
    health: Health,
}

/// What a relay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayReport {
    /// Messages delivered.
    pub delivered: u64,
    /// Failed attempts that will be tried again.
    pub retried: u64,
    /// Attempts that failed because the broker is away, and do not count.
    pub postponed: u64,
    /// Messages given back untouched.
    pub released: u64,
    /// Messages that became dead.
    pub died: u64,
    /// Outcomes that came too late to be written.
    pub lease_lost: u64,
    /// Messages taken back from workers that vanished, where a claim cannot do that.
    pub recovered: u64,
    /// Messages for which the publisher had no answer when the relay had to stop; they are delivered again once their lease
    /// is over.
    pub abandoned: u64,
    /// Outcomes for which the database had no answer when the relay had to stop. Unless it has taken them all the same, their
    /// messages are delivered again once their lease is over.
    pub unsettled: u64,
    /// Outcomes that the database refused to write, and had not taken when the relay stopped.
    pub refused: u64,
    /// Outcomes that could not be written because another transaction had locked the rows, or the whole table, until the
    /// relay stopped; they are delivered again once their lease is over.
    pub busy: u64,
    /// Counted by [`Relay::drain`] alone: messages that were due and that it did not deliver, whatever the reason. They
    /// failed, died, were given back, or their outcome could not be written.
    pub undelivered: u64,
    /// Told by [`Relay::drain`] alone: the first of [`RelayReport::undelivered`] that was tried, and what went wrong.
    pub first_failure: Option<String>,
    /// Counted by [`Relay::drain`] alone, and unless it is limited to topics or a tenant: messages that were due when it
    /// ended and that no claim got. They stand behind one of their key that waits for its retry or is dead, another relay has
    /// them, or somebody has locked their rows. Those of [`RelayReport::undelivered`] that are due again are among them.
    pub remaining: u64,
}

impl RelayReport {
    /// Whether a drain delivered everything that was due.
    pub fn is_complete(&self) -> bool {
        self.undelivered == 0 && self.remaining == 0
    }

    /// Says in the log what was done, field by field.
    fn tell(&self) {
        let Self {
            delivered,
            retried,
            postponed,
            released,
            died,
            lease_lost,
            recovered,
            abandoned,
            unsettled,
            refused,
            busy,
            undelivered,
            ref first_failure,
            remaining,
        } = *self;
        tracing::info!(
            delivered,
            retried,
            postponed,
            released,
            died,
            lease_lost,
            recovered,
            abandoned,
            unsettled,
            refused,
            busy,
            undelivered,
            first_failure,
            remaining,
            "relay stopped"
        );
    }
}

/// Why a relay did not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The store is not usable, and waiting will not help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker was found to be away while draining.
    #[error(
        "the broker is away: {reason}; {} messages were delivered, the others stay in the outbox; drain again when it is back",
        .report.delivered
    )]
    BrokerAway {
        /// What the broker, or the way to it, had to say.
        reason: String,
        /// What was done before.
        report: Box<RelayReport>,
    },
    /// What became of some messages could not be written down, though they may have been published.
    #[error(
        "the database refused {} outcomes and gave no answer for {}, {} rows were locked by other transactions, and {} \
         outcomes came too late to be written; {} messages were delivered; {}; drain again when the cause is gone",
        .report.refused, .report.unsettled, .report.busy, .report.lease_lost, .report.delivered,
        .report.first_failure.as_deref().unwrap_or("the log has the cause")
    )]
    Unsettled {
        /// What was done.
        report: Box<RelayReport>,
    },
    /// A task of the relay panicked, which is a bug. What was in flight is delivered again after its lease.
    #[error("{task} panicked, which is a bug; start the relay again, and report what the log says of the panic")]
    Panicked {
        /// What the task was doing.
        task: &'static str,
    },
    /// Another relay is the active one, and this one was to drain.
    #[error(
        "relay {leader} leads this namespace, and only one may be active; let it deliver, or stop it before you drain"
    )]
    StandingBy {
        /// The active relay.
        leader: String,
    },
}

impl Relay {
    /// A relay with default settings.
    pub fn new(store: impl RelayStore, publisher: impl Publisher) -> Self {
        Self {
            store: Arc::new(store),
            publisher: Arc::new(publisher),
            config: RelayConfig::default(),
            doorbell: LocalDoorbell::default(),
            health: Health::default(),
        }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn config(mut self, config: RelayConfig) -> Self {
        self.config = config;
        self
    }

    /// A doorbell for producers in this process. Ring it after a commit.
    pub fn doorbell(&self) -> LocalDoorbell {
        self.doorbell.clone()
    }

    /// Whether the relay can do its work, for health checks. Ask for it before the relay runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until the token fires, then stops taking work, gives back what was not yet handed to the publisher, and
    /// waits up to `shutdown_grace` for the answers to what was, as long again for them to be written, and two seconds for
    /// its farewell.
    ///
    /// A store that is away is waited for; one that can never work (no tables, wrong password) is an error at the start.
    pub async fn run_until(self, shutdown: CancellationToken) -> Result<RelayReport, RelayError> {
        self.run(Until::Cancelled(shutdown)).await
    }

    /// Delivers what is due and returns. Messages that wait for a retry stay behind; [`RelayReport::undelivered`] says
    /// how many were due and are not delivered, [`RelayReport::remaining`] how many it could not even claim.
    ///
    /// If the circuit opens it does not wait for the broker but ends with [`RelayError::BrokerAway`]; what was not
    /// delivered stays in the outbox. So it ends at a broker that asks for more than five seconds of patience, or again
    /// without having taken anything since. If only one relay may be active and another one is, it ends with
    /// [`RelayError::StandingBy`]; if what became of messages could not be written, with [`RelayError::Unsettled`]. Rows
    /// that another transaction has locked are waited for, but not for more than ten seconds.
    pub async fn drain(self) -> Result<RelayReport, RelayError> {
        self.run(Until::Idle).await
    }

    async fn run(self, until: Until) -> Result<RelayReport, RelayError> {
        self.config.validate()?;
        let store: Arc<dyn RelayStore> = Arc::new(TimedStore::new(self.store, self.config.store_timeout));
        let terms = store.terms();
        self.config.validate_for(&*store)?;
        instrument::register(&self.config.scope);
        match store.check_for(&self.config.scope).await {
            Err(error) if error.kind == StoreErrorKind::SomeRows => {
                tracing::error!(%error, "some messages cannot be served as they are");
            }
            Err(error) if !error.kind.is_transient() => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "the outbox could not be checked; trying to serve it all the same"),
            Ok(()) => {}
        }
        let engine = Arc::new(Engine {
            terms,
            store,
            publisher: self.publisher,
            worker: WorkerId::new(),
            in_flight: InFlight::default(),
            refusals: Refusals::new(&self.config.scope.namespace, terms),
            unclaimable: Unclaimable::new(&self.config.scope.namespace, matches!(until, Until::Idle)),
            circuit: Arc::new(Circuit::new(self.config.breaker.clone(), &self.config.scope.namespace)),
            destinations: Destinations::new(
                self.config.breaker.clone(),
                self.config.retry.clone(),
                self.config.max_in_flight,
                &self.config.scope.namespace,
            ),
            lead: Arc::new(Lead::new(&self.config)),
            config: self.config,
            doorbell: self.doorbell,
            totals: Totals::new(matches!(until, Until::Idle)),
            waiting: Waiting::default(),
            health: self.health,
            supervisor: Supervisor::default(),
        });
        engine.health.started(&engine.circuit);
        tracing::info!(
            worker = %engine.worker.as_uuid(), publisher = engine.publisher.name(),
            namespace = engine.config.scope.namespace, "relay started"
        );
        let ended = run_loops(engine, until).await;
        match &ended {
            Ok(report) => report.tell(),
            Err(RelayError::BrokerAway { report, .. } | RelayError::Unsettled { report }) => report.tell(),
            Err(_) => {}
        }
        ended
    }
}

async fn run_loops(engine: Arc<Engine>, until: Until) -> Result<RelayReport, RelayError> {
    let background = CancellationToken::new();
    let draining = matches!(until, Until::Idle);
    // However this function is left, also by being dropped, the loops beside the road end.
    let _stop_background = background.clone().drop_guard();
    let (outcomes, reported) = mpsc::unbounded_channel();
    let watch = &engine.supervisor;
    // A drain has waited for locks when it ends.
    let in_the_end = if draining { WaitFor::Nobody } else { WaitFor::Locks };
    let settle = settle::run(Arc::clone(&engine), reported, in_the_end);
    let mut settling = tokio::spawn(watch.clone().watch("settling", settle));
    let keep = janitor::keep_leases(Arc::clone(&engine), background.clone());
    let keeping = tokio::spawn(watch.clone().watch("renewing leases", keep));
    let mut presence = JoinSet::new();
    if matches!(until, Until::Cancelled(_)) {
        let clean = janitor::clean(Arc::clone(&engine), background.clone());
        tokio::spawn(watch.clone().watch("cleaning up", clean));
        let recover = janitor::recover(Arc::clone(&engine), background.clone());
        tokio::spawn(watch.clone().watch("recovering stalled messages", recover));
        let announce = announce::run(Arc::clone(&engine), background.clone());
        presence.spawn(watch.clone().watch("announcing this relay", announce));
        if !engine.config.fixed_delay
            && let Some(source) = engine.store.wake_source().await
        {
            let forward = wake::forward(source, engine.doorbell.clone(), background.clone());
            tokio::spawn(watch.clone().watch("waiting for wake-ups", forward));
        }
    }
    if matches!(until, Until::Idle) {
        // Whoever drains does not stay until the janitor would.
        janitor::recover_once(&engine, &mut HashSet::new()).await?;
    }
    if let Some(lease) = engine.lead.lease {
        // Whoever drains has to know before it begins.
        if matches!(until, Until::Idle) {
            lead::ask_once(&engine, lease).await?;
        }
        let keep = lead::keep(Arc::clone(&engine), lease, background.clone());
        presence.spawn(watch.clone().watch("asking for the lead", keep));
    }
    // A death that the table refuses keeps nobody else from being delivered, but whoever drains is told at the end.
    let unswept = draining && janitor::sweep_once(&engine).await.is_err();

    let (publications, hindered) = tokio::select! {
        ended = claim::run(&engine, outcomes, until) => ended,
        // To go on without one of its tasks would be to renew leases and deliver nothing, or the like.
        () = watch.broken() => (JoinSet::new(), Some(Hindered::Panicked)),
    };
    let grace = match hindered {
        Some(Hindered::Panicked) => Duration::ZERO,
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
    // The database has had its chance if it is what hindered.
    let grace = match hindered {
        Some(Hindered::Store(_)) => Duration::ZERO,
        _ => grace,
    };
    if timeout(grace, &mut settling).await.is_err() {
        settling.abort();
        // What it still moves from one count to the other would be in both.
        drop(settling.await);
    }
    let unsettled = engine.in_flight.load().messages.saturating_sub(abandoned);
    if unsettled > 0 {
        tell_unsettled(&engine, unsettled);
    }
    keeping.abort();
    background.cancel();
    if !presence.is_empty() {
        announce::leave(&engine, presence).await;
    }
    let (refused, busy) = (engine.refusals.count(), engine.refusals.busy());
    let report = engine.totals.report(abandoned, unsettled, refused, busy);
    let all_written = report.refused + report.busy + report.unsettled == 0 && !engine.totals.lost_any();
    if draining && hindered.is_none() && !all_written {
        return Err(RelayError::Unsettled {
            report: Box::new(report),
        });
    }
    match hindered {
        Some(hindered) => Err(because(&engine, hindered, report)),
        // It may have met a lock that is gone by now.
        None if unswept => match janitor::sweep_once(&engine).await {
            Ok(_) => Ok(report),
            Err(error) => Err(error.into()),
        },
        None => Ok(report),
    }
}

/// The error of a run that something kept from going on.
fn because(engine: &Engine, hindered: Hindered, report: RelayReport) -> RelayError {
    let report = Box::new(report);
    match hindered {
        // That messages were published without a trace says more than why no others were.
        Hindered::Store(error) if report.busy > 0 || report.unsettled > 0 => {
            tracing::error!(%error, "draining ended early");
            RelayError::Unsettled { report }
        }
        Hindered::Store(error) => error.into(),
        Hindered::CircuitOpen => RelayError::BrokerAway {
            reason: engine.circuit.view().reason.unwrap_or_default(),
            report,
        },
        Hindered::Paused(reason) => RelayError::BrokerAway { reason, report },
        Hindered::Panicked => RelayError::Panicked {
            task: engine.supervisor.culprit().unwrap_or("a task"),
        },
        Hindered::Superseded => RelayError::StandingBy {
            leader: engine.lead.other().unwrap_or_else(|| "of another process".to_owned()),
        },
    }
}

fn tell_abandoned(engine: &Engine, abandoned: u32, grace: Duration) {
    tracing::warn!(
        "the publisher {} gave no answer for {abandoned} messages within relay.shutdown_grace = {grace:?}; they are \
         delivered again after their lease",
        engine.publisher.name()
    );
}

fn tell_unsettled(engine: &Engine, unsettled: u32) {
    tracing::warn!(
        "the database gave no answer to the outcomes of {unsettled} messages, which the publisher {} has answered for; \
         unless it has taken them all the same, they are delivered again after their lease",
        engine.publisher.name()
    );
}
