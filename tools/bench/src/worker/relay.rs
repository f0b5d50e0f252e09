//! Posthaste's relay.

use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use posthaste_core::Publisher;
use posthaste_core::store::RelayStore;
use posthaste_kafka::Connection as Brokers;
use posthaste_postgres::{PostgresLogStore, PostgresStore};
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste_relay::{OrderingConfig, Relay, RelayConfig};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::protocol::{Task, WorkOrder};
use super::watched::{Acknowledged, Counting, Watched};
use crate::arm::Policy;
use crate::layout::Layout;
use crate::tally::Tally;

/// Rows of one read of a log.
const LOG_BATCH: u32 = 2_000;
/// Rows of a log in flight. What a crash repeats at most.
pub(crate) const LOG_IN_FLIGHT: u32 = 16_000;

pub(super) struct RelayArm {
    layout: Layout,
    pool: PgPool,
    config: RelayConfig,
    publisher: Arc<dyn Publisher>,
    acknowledged: Option<Acknowledged>,
    /// Fires at the end of the work, for a relay that would not keep to its pauses if it were told to drain.
    all_delivered: Option<CancellationToken>,
}

impl RelayArm {
    pub(super) fn new(
        layout: Layout,
        policy: Policy,
        pool: &PgPool,
        order: &WorkOrder,
        tally: &Arc<Mutex<Tally>>,
    ) -> anyhow::Result<Self> {
        let all_delivered = CancellationToken::new();
        let acknowledged = match (order.task, policy) {
            (Task::Serve, _) => Some(Acknowledged::default()),
            (Task::Drain, Policy::Own) => {
                let rows = order.workload.rows;
                Some(Acknowledged::until(rows, all_delivered.clone()))
            }
            (Task::Drain, _) => None,
        };
        let publisher: Arc<dyn Publisher> = match &order.brokers {
            None => Arc::new(Watched {
                publisher: Counting(Arc::clone(tally)),
                acknowledged: acknowledged.clone(),
            }),
            Some(brokers) => Arc::new(Watched {
                publisher: KafkaPublisher::new(KafkaOptions::new(Brokers::to(brokers)))?,
                acknowledged: acknowledged.clone(),
            }),
        };
        Ok(Self {
            layout,
            pool: pool.clone(),
            config: config(layout, policy)?,
            publisher,
            acknowledged,
            all_delivered: (policy == Policy::Own).then_some(all_delivered),
        })
    }

    /// Delivers the rows of the work; returns how many.
    pub(super) async fn work_off(&self) -> anyhow::Result<u64> {
        match &self.all_delivered {
            Some(all_delivered) => self.serve(all_delivered.clone()).await,
            None => self.drain().await,
        }
    }

    /// Delivers all that is there; returns how many rows that were.
    pub(super) async fn drain(&self) -> anyhow::Result<u64> {
        let report = self.relay()?.drain().await?;
        ensure!(
            report.undelivered == 0,
            "{} rows were not delivered: {}",
            report.undelivered,
            report.first_failure.unwrap_or_default()
        );
        Ok(report.delivered)
    }

    /// Delivers what comes until it is told to stop.
    pub(super) async fn serve(&self, stop: CancellationToken) -> anyhow::Result<u64> {
        Ok(self.relay()?.run_until(stop).await?.delivered)
    }

    /// When rows were acknowledged.
    pub(super) fn acknowledged(&self) -> Vec<(u32, u64)> {
        self.acknowledged.as_ref().map(Acknowledged::take).unwrap_or_default()
    }

    fn relay(&self) -> anyhow::Result<Relay> {
        let publisher = Arc::clone(&self.publisher);
        Ok(Relay::new(self.store()?, publisher).config(self.config.clone()))
    }

    fn store(&self) -> anyhow::Result<Arc<dyn RelayStore>> {
        let pool = self.pool.clone();
        let Some(map) = self.layout.map()? else {
            return Ok(Arc::new(PostgresStore::new(pool)));
        };
        Ok(if self.layout.is_log() {
            Arc::new(PostgresLogStore::new(pool, map)?)
        } else {
            Arc::new(PostgresStore::with_map(pool, map)?)
        })
    }
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
