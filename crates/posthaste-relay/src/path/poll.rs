//! Claims until the end, as often as there is work.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use posthaste_core::breaker::CircuitState;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::config::RelayConfig;
use crate::engine::Engine;
use crate::guard::in_flight::Load;
use crate::path::claim::{CLAIMING, Claimer, Found, wait_for_room};
use crate::path::pace::{self, Pace};
use crate::upkeep::health::Health;
use crate::upkeep::retry_logger::RetryLogger;

/// The longest wait between claims that bring only rows whose verdicts are refused.
const MAX_REFUSED_DELAY: Duration = Duration::from_secs(5);

/// Claims until the token fires.
pub(crate) async fn run(claimer: &mut Claimer<'_>, shutdown: CancellationToken) {
    claimer.shutdown = shutdown.clone();
    let Engine { in_flight, circuit, .. } = &**claimer.engine;
    let mut retry_logger = RetryLogger::new(CLAIMING, &claimer.engine.health);
    let RelayConfig {
        poll_interval,
        max_poll_interval,
        fixed_delay,
        lease,
        ..
    } = claimer.engine.config;
    let pulse = &claimer.engine.pulses.claiming;
    let _running = pulse.begin();
    let mut pace = Pace::new(
        poll_interval,
        max_poll_interval,
        claimer.engine.requirements.append_only,
    );
    let mut refused_wait = poll_interval;
    while let Some(trials) = shutdown.run_until_cancelled(turn(claimer.engine)).await {
        while claimer.publications.try_join_next().is_some() {}
        let (before, started) = (in_flight.load(), Instant::now());
        let found = match claimer.run_once(trials).await {
            Ok(found) => found,
            Err(error) => {
                let wait = retry_logger.failed(&error);
                pulse.rests(wait);
                shutdown.run_until_cancelled(sleep(wait)).await;
                continue;
            }
        };
        retry_logger.recovered();
        if found != Found::Refused {
            refused_wait = poll_interval;
        }
        pulse.waits("what is in flight to be settled");
        let wait = match found {
            Found::Unclaimable if claimer.engine.unclaimable.is_full() => Some(MAX_REFUSED_DELAY),
            Found::FullBatch | Found::Further | Found::Unclaimable => {
                pace.busy();
                None
            }
            Found::All(token) => {
                pace.busy();
                shutdown.run_until_cancelled(claimer.wait_beside(token)).await;
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
            Found::Some => Some(pace.found_some(started.elapsed())),
            Found::Again => Some(pace.busy()),
            Found::Refused => {
                refused_wait = (refused_wait * 2).min(MAX_REFUSED_DELAY);
                Some(refused_wait)
            }
            Found::Nothing => {
                if before == Load::default() {
                    claimer.scan_budget.backlog_is_over();
                }
                Some(pace.idle())
            }
        };
        let rest = (found == Found::Nothing).then(|| pace::rest(started.elapsed(), lease));
        // What was only looked past is not what the delay is between.
        if fixed_delay && found != Found::Further {
            let wait = poll_interval.max(rest.unwrap_or_default());
            pulse.rests(wait);
            shutdown.run_until_cancelled(sleep(wait)).await;
            continue;
        }
        let Some(wait) = wait.max(rest) else { continue };
        // In a backlog rows may be held back only by their keys' being in flight, and go as soon as those are settled.
        // Counted from before the claim too: what was settled meanwhile may have freed what the claim did not get.
        let peak = in_flight.load().messages.max(before.messages);
        let settled = in_flight.wait_until(|load| load.messages <= peak / 2);
        // What was claimed in vain frees nothing.
        let frees_others = found != Found::Refused && claimer.scan_budget.backlog() && peak > 0;
        pulse.rests(wait);
        // Whichever comes first; all lead to the same place.
        let woken = async {
            tokio::select! {
                () = claimer.engine.notifier.notified() => {}
                () = settled, if frees_others => {}
                () = sleep(wait) => {}
            }
        };
        shutdown.run_until_cancelled(woken).await;
    }
}

/// Waits until something may be claimed; returns how much at most, if the broker is only tried.
async fn turn(engine: &Engine) -> Option<u32> {
    let Engine {
        circuit,
        lead,
        refusals,
        health,
        ..
    } = engine;
    let pulse = &engine.pulses.claiming;
    loop {
        pulse.waits("room in flight");
        wait_for_room(engine).await;
        pulse.waits("the lead");
        without_claims(health, lead.wait()).await;
        pulse.waits("outcomes to be written");
        let writable = without_claims(health, refusals.wait_for_room()).await;
        pulse.waits("the broker");
        let trials = without_claims(health, circuit.wait_for_room()).await;
        if lead.is_leader() {
            return trials.into_iter().chain(writable).min();
        }
    }
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
