//! Stopping on SIGTERM and SIGINT.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Signals that come so soon after the first are the same wish: `timeout` and many supervisors signal the process and then its
/// group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// A token that fires at the first signal. A second one ends the process at once, as if it had died.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        tracing::info!("stopping: finishing what is on its way; signal again to end at once");
        token.cancel();
        let soon = sleep_until(Instant::now() + SAME_WISH);
        tokio::pin!(soon);
        loop {
            tokio::select! {
                () = &mut soon => break,
                _ = either(&mut terminate, &mut interrupt) => {}
            }
        }
        let signal = either(&mut terminate, &mut interrupt).await;
        tracing::warn!("ending at once; what is on its way is delivered again after its lease");
        std::process::exit(128 + signal.as_raw_value());
    });
    Ok(stop)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate(),
        _ = interrupt.recv() => SignalKind::interrupt(),
    }
}
