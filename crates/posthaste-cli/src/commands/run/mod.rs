//! `posthaste run`

mod check;
mod drain;

use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use posthaste_core::store::Store;
use posthaste_core::{Publisher, StoreError};
use posthaste_relay::Relay;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Config;
use crate::listener::{self, Probes};
use crate::otel::{self, Export};
#[cfg(target_os = "linux")]
use crate::systemd;
use crate::wiring;
use crate::{schema, shutdown};

/// Deliver what applications enqueue, until SIGTERM or SIGINT
///
/// Without any configuration the outbox is the SQLite file posthaste.db, which is created, and messages go to standard
/// output. A database that was named needs a publisher that was named: what is delivered counts as delivered.
///
/// A database or a broker that is unavailable is waited for; a database that cannot work (wrong password, no tables)
/// ends the command.
///
/// At the first signal no more work is taken, and what is on its way is finished; a second signal ends the process at
/// once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("ends").args(["check", "drain"])))]
pub struct Run {
    /// Check the settings, the database and the publisher, say what was found, and end
    #[arg(long)]
    check: bool,
    /// Deliver what is due and end, with an error unless all of it was delivered
    #[arg(long)]
    drain: bool,
    /// With --check or --drain: print the result as one JSON object
    #[arg(long, requires = "ends")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste run
  posthaste run --config posthaste.toml --check
  posthaste run --drain --json --set publisher.kind=stdout
  posthaste run --set database.map=./outbox.toml --set publisher.kind=log
  posthaste run --set publisher.kind=kafka --set kafka.brokers=127.0.0.1:9092
  posthaste run --set publisher.kind=file --set publisher.path=events.jsonl

While it runs, metrics.listen=127.0.0.1:9464 serves /metrics for Prometheus, /healthz and /readyz for probes, and \
/status.json for operators.

Under systemd (Type=notify, WatchdogSec) it says when it is ready, what it does, and that its tasks give signs of life.";

impl Run {
    pub async fn run(self, config: Config) -> anyhow::Result<()> {
        if self.check {
            return check::run(&config, self.json).await;
        }
        let stop = shutdown::on_signal()?;
        let export = otel::start(&config.otel)?;
        let ended = Box::pin(self.deliver(config, stop, &export)).await;
        export.stop().await;
        ended
    }

    async fn deliver(self, config: Config, stop: CancellationToken, export: &Export) -> anyhow::Result<()> {
        let publisher = wiring::publisher(&config)?;
        let safety_net = wiring::safety_net(&config)?;
        let probes = Probes::default();
        let _listener = listener::serve(&config.metrics, probes.clone(), export).await?;
        #[cfg(target_os = "linux")]
        let _systemd = systemd::notify(&probes, &stop);
        // Beside the relay, which goes on without it: a broker that is unavailable is said once, and not with every
        // message.
        let _watch = AbortOnDropHandle::new(tokio::spawn(watch(Arc::clone(&publisher))));
        let waiting = reachable_store(&config);
        let Some(store) = stop.run_until_cancelled(waiting).await else {
            return Ok(());
        };
        let prints_messages = config
            .publishers()?
            .iter()
            .any(|publisher| publisher.config.kind() == "stdout");
        let relay = Relay::new(store?, publisher)
            .config(config.relay)
            .safety_net(safety_net);
        probes.watch(relay.health());
        if self.drain {
            let summary = match self.json {
                true => drain::Form::Json,
                false if prints_messages => drain::Form::None,
                false => drain::Form::Text,
            };
            return drain::run(relay, &stop, summary).await;
        }
        relay.run_until(stop).await?;
        Ok(())
    }
}

/// Looks for the publisher's broker until it is found; says so if it is not.
async fn watch(publisher: Arc<dyn Publisher>) {
    let mut wait = MIN_RETRY_DELAY;
    let mut said = false;
    loop {
        match publisher.check().await {
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
                wait = (wait * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Waits for a database that is unavailable, then sees to its tables.
async fn reachable_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let database = &config.database;
    let mut wait = MIN_RETRY_DELAY;
    let mut said = false;
    wiring::writable(database)?;
    let store = wiring::store(database, schema::if_missing(database)).await?;
    loop {
        let ready = match wiring::probe(database).await {
            Ok(()) => schema::prepare(&*store, database).await,
            Err(error) => Err(error),
        };
        let ready = match ready {
            Ok(()) => schema::refuse_unserved_log(&*store, config).await,
            error => error,
        };
        match ready {
            Ok(()) => return Ok(store),
            Err(error) if may_pass(&error) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!("{error}; trying again until it works");
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(MAX_RETRY_DELAY);
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
