//! `posthaste log move`

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use humantime_serde::re::humantime::parse_duration;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_core::readable::Readable;
use posthaste_core::store::SchemaStore;
use posthaste_postgres::{MovePlan, MoveStep, PostgresLogStore, QueueMove};
use posthaste_sqlite::SqliteLogStore;
use serde_json::json;
use tokio::time::sleep;

use super::tables;
use crate::config::Config;
use crate::wiring::NativeLog;
use crate::{terminal, wiring};

/// Move all messages of the queue to the log in the same schema
///
/// Relays of the queue must be stopped first; producers may go on. Nothing is lost and the order of each key stays. Messages
/// that are written to the queue later, by producers that were not told, are redirected to the log; on SQLite they wait there
/// until they are moved as well, so stop producers, too. Cut short, run it again: it goes on where it was. Set
/// database.layout = "log" for relays and producers afterwards.
#[derive(Debug, Args)]
pub struct MoveQueue {
    /// Only say what would be moved, and what stands in the way
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for relays to stop, for their leases to end, and for transactions of producers
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    wait: Duration,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Fresh messages of one transaction.
const BATCH: u32 = 5_000;

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(250);

impl MoveQueue {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let namespace = &config.relay.scope.namespace;
        if namespace != "default" {
            bail!("relay.scope.namespace = {namespace}: a log has no namespaces, so only `default` can be moved");
        }
        wiring::probe(&config.database).await?;
        match wiring::native_log(&config.database).await? {
            NativeLog::Postgres(store) => self.move_on_postgres(&store).await,
            NativeLog::Sqlite(store) => self.move_on_sqlite(&store).await,
        }
    }

    async fn move_on_postgres(&self, store: &PostgresLogStore) -> anyhow::Result<()> {
        let queue = tables(store)?.queue_move();
        let plan = queue.plan().await?;
        if self.dry_run {
            return self.print_plan(&plan);
        }
        store.migrate().await?;
        let moved = Move::new(queue, &plan, self.wait).run().await?;
        self.print_moved(
            moved,
            true,
            "what is still written to the queue goes to the log; set database.layout = \"log\" for relays and producers",
        )
    }

    /// There is nothing in between: one transaction moves all of it.
    async fn move_on_sqlite(&self, store: &SqliteLogStore) -> anyhow::Result<()> {
        if self.dry_run {
            return self.print_plan(&store.move_plan().await?);
        }
        store.migrate().await?;
        let since = Instant::now();
        let moved = loop {
            let plan = store.move_plan().await?;
            if plan.relays == 0
                && let Some(moved) = store.move_queue().await?
            {
                break moved;
            }
            let waits_for = match plan.relays {
                0 => format!("{} messages that a relay has claimed", plan.leased),
                relays => format!("{relays} relays to stop"),
            };
            if since.elapsed() >= self.wait {
                bail!("waited {} for {waits_for}; nothing was moved", Readable(self.wait));
            }
            sleep(PAUSE).await;
        };
        self.print_moved(
            moved,
            false,
            "set database.layout = \"log\" for relays and producers; what is written to the queue later has to be moved again",
        )
    }

    fn print_moved(&self, moved: u64, redirected: bool, next: &str) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ "moved": moved, "redirected": redirected }));
        }
        writeln!(out, "moved {moved} messages to the log")?;
        writeln!(out, "{next}")?;
        Ok(())
    }

    fn print_plan(&self, plan: &MovePlan) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({
                "would_move": plan.messages(), "pending": plan.pending, "waiting": plan.waiting, "dead": plan.dead,
                "processing": plan.processing, "relays": plan.relays, "fenced": plan.is_fenced,
                "redirected": plan.is_redirected,
            }));
        }
        writeln!(
            out,
            "would move {} messages: {} pending, {} waiting, {} dead, {} processing",
            plan.messages(),
            plan.pending,
            plan.waiting,
            plan.dead,
            plan.processing
        )?;
        if plan.is_redirected {
            writeln!(
                out,
                "the outbox was moved before: what is written to the queue goes to the log"
            )?;
        } else if plan.is_fenced {
            writeln!(
                out,
                "a move was begun: relays of the queue claim nothing until it is run to its end"
            )?;
        } else if plan.relays > 0 {
            writeln!(out, "{} relays are alive: stop them first", plan.relays)?;
        }
        Ok(())
    }
}

/// A move on its way.
struct Move<'a> {
    queue: QueueMove<'a>,
    wait: Duration,
    /// When waiting began.
    since: Instant,
    bar: ProgressBar,
    moved: u64,
    /// Relays of the queue are kept from claiming.
    is_fenced: bool,
}

impl<'a> Move<'a> {
    fn new(queue: QueueMove<'a>, plan: &MovePlan, wait: Duration) -> Self {
        let style = ProgressStyle::with_template("{prefix:>10} {bar:40.green} {pos:>7} of {len} messages");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            queue,
            wait,
            since: Instant::now(),
            bar: ProgressBar::new(plan.messages()).with_style(style).with_prefix("moved"),
            moved: 0,
            is_fenced: plan.is_fenced,
        }
    }

    async fn run(mut self) -> anyhow::Result<u64> {
        let done = self.steps().await;
        self.bar.finish_and_clear();
        done?;
        Ok(self.moved)
    }

    async fn steps(&mut self) -> anyhow::Result<()> {
        loop {
            let plan = self.queue.plan().await?;
            // Whoever is alive later is a relay of the log, or is refused.
            if plan.is_fenced || plan.relays == 0 {
                break;
            }
            self.pause(&format!("{} relays to stop", plan.relays)).await?;
        }
        while self.queue.fence().await? == MoveStep::Busy {
            self.pause("the transactions that use the queue").await?;
        }
        self.is_fenced = true;
        loop {
            let leased = self.queue.plan().await?.leased;
            if leased == 0 {
                break;
            }
            self.pause(&format!("{leased} messages that a relay has claimed"))
                .await?;
        }
        self.since = Instant::now();
        loop {
            self.move_most().await?;
            match self.queue.redirect().await? {
                MoveStep::Done(moved) => {
                    self.count(moved);
                    return Ok(());
                }
                MoveStep::Busy => self.pause("transactions of producers that are open").await?,
            }
        }
    }

    /// What is left then is little, and moved while producers wait.
    async fn move_most(&mut self) -> anyhow::Result<()> {
        loop {
            let moved = self.queue.move_batch(BATCH).await?;
            self.count(moved);
            if moved < u64::from(BATCH) {
                return Ok(());
            }
        }
    }

    fn count(&mut self, moved: u64) {
        self.moved += moved;
        self.bar.inc(moved);
    }

    async fn pause(&self, waits_for: &str) -> anyhow::Result<()> {
        if self.since.elapsed() >= self.wait {
            let fenced = if self.is_fenced {
                "; until it is through, relays of the queue claim nothing"
            } else {
                ""
            };
            bail!(
                "waited {} for {waits_for}; {} messages were moved, and running it again goes on from here{fenced}",
                Readable(self.wait),
                self.moved
            );
        }
        self.bar.set_message(format!("waits for {waits_for}"));
        sleep(PAUSE).await;
        Ok(())
    }
}
