//! What goes wrong, and when.

use std::time::Duration;

use indicatif::ProgressBar;
use tokio::time::{Instant, sleep_until};

use super::Drive;
use super::fleet::{Fleet, Role, Servers};

/// Takes the shop through its bad day; returns when the customers have shopped long enough.
pub async fn run(drive: &Drive, servers: &Servers, fleet: &mut Fleet, bar: &ProgressBar) -> anyhow::Result<()> {
    let started = Instant::now();
    let whole = Duration::from_secs(drive.seconds);
    let at = |share: f64| sleep_until(started + whole.mul_f64(share));

    bar.set_message("all is well");
    at(0.1).await;
    bar.set_message("a relay is killed with its messages in flight");
    fleet.kill(Role::Relay(0)).await?;
    fleet.launch(Role::Relay(0))?;

    at(0.2).await;
    bar.set_message("one broker of three is killed");
    servers.kafka.kill(0)?;
    at(0.35).await;
    bar.set_message("the broker is back");
    servers.kafka.start_again(0)?;

    at(0.45).await;
    bar.set_message("a consumer is killed");
    fleet.kill(Role::Consumer(0)).await?;
    fleet.launch(Role::Consumer(0))?;

    at(0.55).await;
    bar.set_message("all brokers are killed, and customers go on");
    servers.kafka.kill_all()?;
    sleep_until(Instant::now() + Duration::from_secs(drive.outage)).await;
    bar.set_message("the brokers are back");
    servers.kafka.start_all_again()?;

    at(0.9).await;
    bar.set_message("both relays are killed");
    for relay in [Role::Relay(0), Role::Relay(1)] {
        fleet.kill(relay).await?;
        fleet.launch(relay)?;
    }
    at(1.0).await;
    Ok(())
}
