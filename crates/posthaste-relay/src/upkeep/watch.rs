//! Looks at the signs of life every second: shows a standstill in figures and says so in the log. Also says what has failed
//! repeatedly since it was told.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::upkeep::pulse::{Pulses, TaskState};

const INTERVAL: Duration = Duration::from_secs(1);

/// Watches until the end.
pub(crate) async fn run(engine: Arc<Engine>, stop: CancellationToken) {
    let mut watch = Watch::new(&engine.config.scope.namespace);
    loop {
        watch.look(&engine.pulses);
        engine.health.show();
        engine.failure_log.summarise(false);
        if stop.run_until_cancelled(sleep(INTERVAL)).await.is_none() {
            return;
        }
    }
}

struct Watch {
    namespace: String,
    stalled: HashSet<&'static str>,
}

impl Watch {
    fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            stalled: HashSet::new(),
        }
    }

    fn look(&mut self, pulses: &Pulses) {
        let namespace = &self.namespace;
        for pulse in pulses.all() {
            let task = pulse.task();
            let report = pulse.report();
            let stalled = report.as_ref().filter(|report| report.state == TaskState::Stalled);
            gauge!("outbox_task_stalled", "namespace" => namespace.clone(), "task" => task)
                .set(f64::from(u8::from(stalled.is_some())));
            match stalled {
                Some(report) if self.stalled.insert(task) => tracing::error!(
                    namespace,
                    task,
                    "{task} stands still: no sign of life for {:.0} seconds; /healthz says so, and a restart helps",
                    report.seconds
                ),
                None if self.stalled.remove(task) => tracing::info!(namespace, task, "{task} goes on"),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::guard::timed::Limits;
    use crate::observed::observe;

    #[tokio::test(start_paused = true)]
    async fn a_standstill_is_told_once_and_shown_until_it_ends() {
        let pulses = Pulses::new(&Limits::new(Duration::from_secs(1)));
        let _running = pulses.settling.begin();
        let mut watch = Watch::new("default");
        let (counted, log) = observe(|| watch.look(&pulses));
        assert_eq!((counted["outbox_task_stalled"], log.as_str()), (0, ""));
        advance(Duration::from_secs(7)).await;
        let (_, log) = observe(|| (0..3).for_each(|_| watch.look(&pulses)));
        assert!(
            log.contains("settling stands still") && log.lines().count() == 1,
            "{log}"
        );
        pulses.settling.works();
        let (_, log) = observe(|| watch.look(&pulses));
        assert!(log.contains("settling goes on"), "{log}");
    }
}
