//! Tells systemd how the relay is: `Type=notify` and `WatchdogSec`. Without systemd this is nothing.

use std::time::Duration;

use posthaste_relay::{HealthReport, Leadership, Phase};
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::listener::Probes;

/// How often it is looked whether there is anything to say.
const INTERVAL: Duration = Duration::from_millis(250);

/// A relay that waits for its database asks for this much more time at each look, so that it is not ended for waiting.
const MORE_TIME: Duration = Duration::from_secs(30);

/// Says how the relay is until the handle is dropped.
pub fn notify(probes: &Probes, stop: &CancellationToken) -> Option<AbortOnDropHandle<()>> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (probes, stop) = (probes.clone(), stop.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::join!(tell_status(&probes), tell_alive(&probes), async {
            stop.cancelled().await;
            send(&[NotifyState::Stopping]);
        });
    })))
}

/// Says when the relay has started, and what it is doing whenever that changes.
async fn tell_status(probes: &Probes) {
    let (mut told, mut started) = (String::new(), false);
    loop {
        let report = probes.report();
        if report.relay == Phase::Starting {
            let more = u32::try_from(MORE_TIME.as_micros()).unwrap_or(u32::MAX);
            send(&[NotifyState::ExtendTimeoutUsec(more)]);
        } else if !std::mem::replace(&mut started, true) {
            send(&[NotifyState::Ready]);
        }
        let status = in_one_line(&report);
        if status != told {
            send(&[NotifyState::Status(&status)]);
            told = status;
        }
        sleep(INTERVAL).await;
    }
}

/// Says twice within `WatchdogSec` that all tasks give signs of life; is silent if one does not, and systemd ends the process.
async fn tell_alive(probes: &Probes) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return;
    };
    let mut ticks = interval(limit / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if probes.report().alive {
            send(&[NotifyState::Watchdog]);
        }
    }
}

fn in_one_line(report: &HealthReport) -> String {
    let line = match (&report.problem, report.relay, report.leadership) {
        (Some(problem), _, _) => problem.clone(),
        (None, Phase::Running, Some(Leadership::Standby)) => match &report.leader {
            Some(leader) => format!("standing by; relay {leader} leads"),
            None => "standing by".to_owned(),
        },
        (None, ..) => match &report.circuit_reason {
            Some(reason) => format!("the broker is unavailable, and messages wait: {reason}"),
            None => "delivering".to_owned(),
        },
    };
    line.replace('\n', " ")
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd could not be told");
    }
}
