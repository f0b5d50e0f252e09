//! Alerts on their way out: each cause once, and not too many at a time.
//!
//! What was told shortly before under the same kind, topic and cause is not told again, but counted, and told as a summary
//! when its time comes. So is whatever goes beyond what may be sent in a minute. An alert that its sink does not take is sent
//! again later, with what has come meanwhile.

mod policy;
#[cfg(test)]
mod tests;
mod throttle;

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use posthaste_core::MessageId;
use posthaste_core::alert::{Alert, AlertKind, AlertSink};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub use self::policy::AlertPolicy;
pub(crate) use self::policy::Event;
use self::throttle::Throttle;

/// How long a sink may take for one alert.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) enum Order {
    Tell(Event),
    /// These letters have a place after all.
    Withdraw(Vec<MessageId>),
    /// Answered when everything before it was sent or held back.
    Flush(oneshot::Sender<()>),
}

pub(crate) struct Alerter {
    pub(crate) namespace: String,
    pub(crate) sink: Arc<dyn AlertSink>,
    pub(crate) policy: AlertPolicy,
}

/// Sends alerts until it is stopped.
pub(crate) async fn run(alerter: Alerter, mut orders: mpsc::UnboundedReceiver<Order>, stop: CancellationToken) {
    let mut throttle = Throttle::new(&alerter.namespace, alerter.policy.clone());
    let mut received = Vec::new();
    loop {
        let due = throttle.next_due();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            count = orders.recv_many(&mut received, 1_000) => {
                if count == 0 {
                    return;
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
        let mut flushed = Vec::new();
        for order in received.drain(..) {
            match order {
                Order::Tell(event) => throttle.add(event),
                Order::Withdraw(ids) => throttle.withdraw(&ids),
                Order::Flush(done) => flushed.push(done),
            }
        }
        while let Some(alert) = throttle.next(Instant::now()) {
            let sent = alerter.send(&alert).await;
            throttle.sent(alert, sent, Instant::now());
        }
        count_suppressed(&alerter.namespace, throttle.take_suppressed());
        for done in flushed {
            // Who asked may have gone.
            let _ = done.send(());
        }
    }
}

impl Alerter {
    async fn send(&self, alert: &Alert) -> bool {
        let sent = timeout(SEND_TIMEOUT, self.sink.send(alert)).await;
        let failure = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.message),
            Err(_) => Some(format!("gave no answer within {SEND_TIMEOUT:?}")),
        };
        let outcome = if failure.is_none() { "ok" } else { "failed" };
        let (namespace, sent) = (
            self.namespace.clone(),
            if failure.is_none() { "sent" } else { "failed" },
        );
        counter!("outbox_alert_count", "namespace" => namespace.clone(), "outcome" => sent).increment(1);
        if alert.kind == AlertKind::Net {
            super::instrument::caught(&namespace, "webhook", outcome, alert.count);
        }
        match &failure {
            None => tracing::warn!(namespace, kind = alert.kind.as_str(), "alert sent: {}", alert.title()),
            Some(error) => tracing::error!(
                namespace,
                kind = alert.kind.as_str(),
                error,
                "an alert could not be sent, and is tried again: {}",
                alert.title()
            ),
        }
        failure.is_none()
    }
}

fn count_suppressed(namespace: &str, suppressed: u64) {
    if suppressed > 0 {
        counter!("outbox_alert_count", "namespace" => namespace.to_owned(), "outcome" => "suppressed")
            .increment(suppressed);
    }
}
