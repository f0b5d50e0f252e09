//! Keeps the seats of this instance, on the connection by which it is known to be there.

use std::time::{Duration, Instant};

use posthaste_core::store::WorkerId;
use posthaste_sql::table::Identifier;
use sqlx::Connection;
use uuid::Uuid;

use super::Log;
use super::error::{LogError, LogResult};
use super::reader_lock::Link;
use super::seats::{self, Plan, Seats};

/// How often seats are looked at, at least: another instance may have come that is to get some of them.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Keeper {
    seats: Seats,
    schema: Identifier,
    /// None before the first look, and after the connection was lost.
    link: Option<Link>,
    /// Whose seats these are.
    worker: WorkerId,
    lease: Duration,
    looked_at: Option<Instant>,
    renewed_at: Option<Instant>,
    /// Other instances are there.
    has_company: bool,
    /// There is a seat that it wants and did not get, so that it looks whenever it is asked.
    lacks: bool,
}

impl Keeper {
    pub(super) fn new(schema: &Identifier) -> Self {
        Self {
            seats: Seats::new(schema),
            schema: schema.clone(),
            link: None,
            worker: WorkerId::from(Uuid::nil()),
            lease: Duration::ZERO,
            looked_at: None,
            renewed_at: None,
            has_company: false,
            lacks: true,
        }
    }

    /// Who asked for seats, and for how long they are taken; nobody, if they were given up.
    pub(super) fn asked(&self) -> Option<(WorkerId, Duration)> {
        (!self.lease.is_zero()).then_some((self.worker, self.lease))
    }

    /// The shards that it has seats for, with their epochs.
    pub(super) fn held(&self) -> impl Iterator<Item = (i32, i64)> {
        self.seats.held()
    }

    /// Whether others are there that could read its shards, by the last look.
    pub(super) fn has_company(&self) -> bool {
        self.has_company
    }

    pub(super) fn is_leaving(&self, shard: i32) -> bool {
        self.seats.is_leaving(shard)
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, lease: Duration) -> bool {
        let is_old = |at: Option<Instant>, age: Duration| at.is_none_or(|at| at.elapsed() >= age);
        self.link.is_none() || self.lacks || self.lease != lease || is_old(self.looked_at, LOOK_INTERVAL.min(lease / 3))
    }

    /// Makes it time to look.
    pub(super) fn be_due(&mut self) {
        self.looked_at = None;
    }

    /// Takes its place among the instances, and renews its leases if it is time to; says which seats it has lost.
    pub(super) async fn sit(&mut self, log: &Log, worker: WorkerId, lease: Duration) -> LogResult<Vec<i32>> {
        let is_new = self.link.is_none();
        let mut link = match self.link.take() {
            Some(link) => link,
            None => log.connect(lease).await?,
        };
        if is_new {
            self.worker = worker;
            self.seats.register(&mut link.connection, worker.as_uuid()).await?;
        } else if self.lease != lease {
            link.limit_idling(lease).await?;
        }
        let fresh = self.renewed_at.is_some_and(|at| at.elapsed() < lease / 3);
        let mut lost = Vec::new();
        if is_new || !fresh || self.lease != lease {
            lost = self.seats.renew(&mut link.connection, lease).await?;
            self.renewed_at = Some(Instant::now());
        }
        self.lease = lease;
        self.link = Some(link);
        Ok(lost)
    }

    /// What is to be taken and what to be handed over.
    pub(super) async fn plan(&mut self) -> LogResult<Plan> {
        let Some(mut link) = self.link.take() else {
            return Ok(Plan::default());
        };
        let plan = self.seats.plan(&mut link.connection).await?;
        self.looked_at = Some(Instant::now());
        (self.lacks, self.has_company) = (plan.lacks, plan.has_company);
        self.link = Some(link);
        Ok(plan)
    }

    /// What keeps later shards waiting.
    pub(super) async fn hold_ups(&mut self) -> LogResult<Vec<String>> {
        let Some(link) = &mut self.link else {
            return Ok(Vec::new());
        };
        let found = seats::hold_ups(&mut link.connection, &self.schema).await;
        if found.as_ref().is_err_and(LogError::ends_connection) {
            self.link = None;
        }
        found
    }

    /// Gives up seats that nobody reads any more.
    pub(super) async fn release(&mut self, shards: &[i32]) -> LogResult<()> {
        let Some(mut link) = self.link.take() else {
            return Ok(());
        };
        self.seats.release(&mut link.connection, shards).await?;
        self.link = Some(link);
        Ok(())
    }

    /// Takes seats as planned.
    pub(super) async fn take(&mut self, plan: &Plan) -> LogResult<()> {
        let Some(mut link) = self.link.take() else {
            return Ok(());
        };
        self.seats.take(&mut link.connection, plan, self.lease).await?;
        self.link = Some(link);
        Ok(())
    }

    /// Is there no more.
    pub(super) async fn close(&mut self) -> LogResult<()> {
        if let Some(link) = self.link.take() {
            link.connection.close().await?;
        }
        (self.lease, self.looked_at, self.renewed_at) = (Duration::ZERO, None, None);
        Ok(())
    }
}
