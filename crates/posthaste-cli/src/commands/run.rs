//! `posthaste run`

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use posthaste_core::StoreError;
use posthaste_core::store::Store;
use posthaste_relay::{Relay, RelayReport};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::{Config, Database};
use crate::wiring::{self, IfMissing, Outlet};
use crate::{metrics, schema, shutdown};

/// Deliver what applications enqueue, until SIGTERM or SIGINT
///
/// Without any configuration the outbox is the SQLite file posthaste.db, which is created, and messages go to standard
/// output. A database or a broker that is away is waited for; a database that cannot work (wrong password, no tables)
/// ends the command.
///
/// At the first signal no more work is taken, and what is on its way is finished; a second signal ends the process at
/// once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Check the settings, the database and the publisher, say what was found, and end
    #[arg(long, conflicts_with = "drain")]
    check: bool,
    /// Deliver what is due and end
    #[arg(long)]
    drain: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste run
  posthaste run --config posthaste.toml --check
  posthaste run --database-url postgres://db/shop --set database.map=./outbox.toml
  POSTHASTE_DATABASE__URL=postgres://relay:secret@db/shop posthaste run
  posthaste run --set publisher.kind=kafka --set kafka.brokers=127.0.0.1:9092
  posthaste run --set publisher.kind=file --set publisher.path=events.jsonl --set metrics.listen=127.0.0.1:9464";

impl Run {
    pub async fn run(self, config: Config) -> anyhow::Result<()> {
        if self.check {
            return check(&config).await;
        }
        let stop = shutdown::on_signal()?;
        metrics::serve(&config.metrics)?;
        let outlet = wiring::publisher(&config)?;
        let publisher = Arc::clone(&outlet.publisher);
        // Beside the relay, which goes on without it: a broker that is away is said once, and not with every message.
        let _watch = AbortOnDropHandle::new(tokio::spawn(watch(outlet)));
        let waiting = reachable_store(&config.database);
        let Some(store) = stop.run_until_cancelled(waiting).await else {
            return Ok(());
        };
        let relay = Relay::new(store?, publisher).config(config.relay);
        if self.drain {
            drain(relay, stop).await?;
        } else {
            relay.run_until(stop).await?;
        }
        Ok(())
    }
}

/// What is on its way when the signal comes is delivered again after its lease.
async fn drain(relay: Relay, stop: CancellationToken) -> anyhow::Result<Option<RelayReport>> {
    Ok(stop.run_until_cancelled(relay.drain()).await.transpose()?)
}

/// Looks for the publisher's broker until it is found; says so if it is not.
async fn watch(outlet: Outlet) {
    let mut wait = FIRST_WAIT;
    let mut said = false;
    loop {
        match outlet.probe().await {
            Ok(found) => {
                if said {
                    tracing::info!("found {found}");
                }
                return;
            }
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!("{error}; messages wait until it works");
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Waits for a database that is away, then sees to its tables.
async fn reachable_store(database: &Database) -> anyhow::Result<Arc<dyn Store>> {
    let mut wait = FIRST_WAIT;
    let mut said = false;
    wiring::writable(database)?;
    let store = wiring::store(database, schema::if_missing(database)).await?;
    loop {
        let ready = match wiring::probe(database).await {
            Ok(()) => schema::prepare(&*store, database).await,
            Err(error) => Err(error),
        };
        match ready {
            Ok(()) => return Ok(store),
            Err(error) if may_pass(&error) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!("{error}; trying again until it works");
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            Err(error) => return Err(error),
        }
    }
}

fn may_pass(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<StoreError>()
        .is_some_and(|error| error.kind.is_transient())
}

async fn check(config: &Config) -> anyhow::Result<()> {
    let database = &config.database;
    let outlet = wiring::publisher(config)?;
    wiring::probe(database).await?;
    wiring::writable(database)?;
    let if_missing = if database.auto_migrate() {
        IfMissing::Pretend
    } else {
        IfMissing::Refuse
    };
    let store = wiring::store(database, if_missing).await?;
    let missing = schema::missing(&*store).await?;
    let found = if missing.is_empty() {
        let tables = if let Some(map) = database.table_map() {
            schema::prepare(&*store, database).await?;
            let warnings = match schema::findings(database).await?.len() {
                0 => "",
                _ => ", with warnings (see `posthaste maps check`)",
            };
            format!("table map {} fits{warnings}", map.name())
        } else {
            let version = store.applied().await?.into_iter().max().unwrap_or_default();
            format!("schema version {version}")
        };
        store.check().await?;
        let namespace = &config.relay.scope.namespace;
        let stats = store.stats(namespace).await?;
        format!(
            "{tables}; namespace {namespace}: {} pending, {} processing, {} dead",
            stats.pending, stats.processing, stats.dead
        )
    } else if database.auto_migrate() {
        "no tables yet; `run` will create them".to_owned()
    } else {
        return schema::prepare(&*store, database).await;
    };
    let publisher = outlet.probe().await?;
    let mut out = stdout().lock();
    writeln!(out, "settings   ok")?;
    writeln!(out, "database   {} ({})", database.url(), database.url().product())?;
    writeln!(out, "outbox     {found}")?;
    writeln!(out, "publisher  {publisher}")?;
    match config.metrics.listen {
        Some(listen) => writeln!(out, "metrics    http://{listen}/metrics")?,
        None => writeln!(out, "metrics    off; set metrics.listen to serve them")?,
    }
    Ok(())
}
