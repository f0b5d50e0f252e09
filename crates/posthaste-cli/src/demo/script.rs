//! What goes wrong, and when.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Stage;
use super::progress::Progress;
use super::relay::RelayProcess;

/// How long a killed relay stays down.
const ABSENCE: Duration = Duration::from_millis(200);

/// Runs the relay through its troubles for as long as orders are placed, and hands it back alive.
pub(super) async fn play(stage: &Stage, length: Duration, progress: &Progress) -> anyhow::Result<RelayProcess> {
    let start = Instant::now();
    let at = |share: f64| sleep_until(start + length.mul_f64(share));

    progress.say("orders are being placed and delivered");
    let relay = RelayProcess::start(stage)?;
    at(0.30).await;
    let relay = kill_and_restart(relay, stage, progress).await?;
    at(0.45).await;
    fs::write(stage.outage(), "")?;
    progress.say("sink down: deliveries fail and are tried again");
    at(0.60).await;
    fs::remove_file(stage.outage())?;
    progress.say("sink up again");
    at(0.75).await;
    let relay = kill_and_restart(relay, stage, progress).await?;
    at(1.0).await;
    Ok(relay)
}

async fn kill_and_restart(relay: RelayProcess, stage: &Stage, progress: &Progress) -> anyhow::Result<RelayProcess> {
    relay.kill().await?;
    progress.say("relay killed: what it held waits for its lease");
    sleep(ABSENCE).await;
    let relay = RelayProcess::start(stage)?;
    progress.say("relay started again");
    Ok(relay)
}
