//! Posthaste's relay.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use posthaste_core::Publisher;
use posthaste_core::store::RelayStore;
use posthaste_kafka::Connection as Brokers;
use posthaste_postgres::{PostgresLogStore, PostgresStore};
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste_relay::{OrderingConfig, Relay, RelayConfig, RelayError, RelayReport};
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::protocol::{Task, WorkOrder};
use super::watched::{Acknowledged, Answered, Counting, Watched};
use crate::arm::Policy;
use crate::layout::Layout;
use crate::tally::Tally;

/// Rows of one read of a log.
const LOG_BATCH: u32 = 2_000;
/// Rows of a log in flight. What a crash repeats at most.
pub(crate) const LOG_IN_FLIGHT: u32 = 16_000;

/// How long a relay that was warmed up may write down what it has done.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(300);

/// A relay that runs.
pub(super) struct RunningRelay {
    stop: CancellationToken,
    relay: JoinHandle<Result<RelayReport, RelayError>>,
    answered: watch::Receiver<Answered>,
    acknowledged: Option<Acknowledged>,
}

impl RunningRelay {
    pub(super) fn start(
        layout: Layout,
        policy: Policy,
        pool: &PgPool,
        order: &WorkOrder,
        tally: &Arc<Mutex<Tally>>,
    ) -> anyhow::Result<Self> {
        let acknowledged = (order.task == Task::Serve).then(Acknowledged::default);
        let (sender, answered) = watch::channel(Answered::default());
        let publisher: Arc<dyn Publisher> = match &order.brokers {
            None => Arc::new(Watched {
                publisher: Counting(Arc::clone(tally)),
                answered: sender,
                acknowledged: acknowledged.clone(),
            }),
            Some(brokers) => Arc::new(Watched {
                publisher: KafkaPublisher::new(KafkaOptions::new(Brokers::to(brokers)))?,
                answered: sender,
                acknowledged: acknowledged.clone(),
            }),
        };
        let relay = Relay::new(store(layout, pool.clone())?, publisher).config(config(layout, policy)?);
        let stop = CancellationToken::new();
        Ok(Self {
            relay: tokio::spawn(relay.run_until(stop.clone())),
            stop,
            answered,
            acknowledged,
        })
    }

    /// Waits until so many rows were delivered that were there before, and the relay is at rest.
    pub(super) async fn warm_up(&mut self, rows: u32) -> anyhow::Result<()> {
        self.wait_for(u64::from(rows)).await?;
        tokio::time::sleep(SETTLE_TIME).await;
        Ok(())
    }

    /// Waits until so many rows were answered since the start.
    pub(super) async fn wait_for(&mut self, rows: u64) -> anyhow::Result<()> {
        let enough = self.answered.wait_for(|answered| answered.rows >= rows);
        tokio::select! {
            answered = enough => Ok(answered.map(drop)?),
            ended = &mut self.relay => bail!("the relay ended: {:?}", ended?),
        }
    }

    /// Ends the relay; returns when the last row was answered, and when each of them was, if that was asked for. What is in
    /// flight is answered before it ends.
    pub(super) async fn stop(self) -> anyhow::Result<(u64, Vec<(u32, u64)>)> {
        self.stop.cancel();
        self.relay.await??;
        let acknowledged = self.acknowledged.as_ref().map(Acknowledged::take);
        let finished_at = self.answered.borrow().at;
        Ok((finished_at, acknowledged.unwrap_or_default()))
    }
}

fn store(layout: Layout, pool: PgPool) -> anyhow::Result<Arc<dyn RelayStore>> {
    let Some(map) = layout.map()? else {
        return Ok(Arc::new(PostgresStore::new(pool)));
    };
    Ok(if layout.is_log() {
        Arc::new(PostgresLogStore::new(pool, map)?)
    } else {
        Arc::new(PostgresStore::with_map(pool, map)?)
    })
}

fn config(layout: Layout, policy: Policy) -> anyhow::Result<RelayConfig> {
    let ours = RelayConfig::default();
    Ok(match policy {
        Policy::Ours => ours,
        Policy::Unordered => RelayConfig {
            ordering: OrderingConfig {
                per_key: false,
                ..OrderingConfig::default()
            },
            ..ours
        },
        Policy::Log => RelayConfig {
            batch_size: LOG_BATCH,
            max_in_flight: LOG_IN_FLIGHT,
            ..ours
        },
        Policy::Own => {
            let map = layout.map()?.context("a table of our own has no policy")?;
            RelayConfig::with_policy(map.policy())?
        }
    })
}
