//! `posthaste log move`

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use humantime_serde::re::humantime::parse_duration;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_core::StoreError;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::readable::Readable;
use posthaste_core::store::{OutboxStats, RelayRecord, SchemaStore, Store, StoreErrorKind};
use posthaste_postgres::{MovePlan, MoveProgress, MoveStep, PostgresLogStore, QueueMove, Unfit};
use posthaste_sqlite::SqliteLogStore;
use serde_json::json;
use tokio::time::sleep;

use super::tables;
use crate::config::Config;
use crate::unserved::{InLog, is_empty};
use crate::wiring::NativeLog;
use crate::{terminal, wiring};

/// Move all messages of the queue to the log in the same schema
///
/// Relays of the queue must be stopped first; producers may go on. Nothing is lost and the order of each key stays. Messages
/// that are written to the queue later, by producers that were not told, are redirected to the log; on SQLite they wait there
/// until they are moved as well, so stop producers, too. Cut short, run it again: it goes on where it was. Set
/// database.layout = "log" for relays and producers afterwards. Once the queue was moved there is no way back, also if it was empty.
///
/// Messages that the log does not take are named before anything is changed: on PostgreSQL those whose topic has more than 512 bytes
/// or whose key has more than 2048, on SQLite those whose id is not text.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MoveQueue {
    /// Only say what would be moved, and what stands in the way
    #[arg(long)]
    dry_run: bool,
    /// Let relays of the queue claim again after a move that was begun; only while nothing was moved
    #[arg(long, conflicts_with = "dry_run")]
    abort: bool,
    /// How long to wait for relays to stop, for their leases to end, and for transactions of producers
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    wait: Duration,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste log move --dry-run    what would be moved, and what stands in the way
  posthaste log move --wait 5m
  posthaste log move --abort      take back a move that was begun and has moved nothing";

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
        let log = wiring::native_log(&config.database).await?;
        match &log {
            NativeLog::Postgres(store) => self.move_on_postgres(store, &log).await,
            NativeLog::Sqlite(store) => self.move_on_sqlite(store).await,
        }
    }

    async fn move_on_postgres(&self, store: &PostgresLogStore, log: &NativeLog) -> anyhow::Result<()> {
        let queue = tables(store)?.queue_move();
        if self.abort {
            return self.abort(store, queue).await;
        }
        let plan = queue.plan().await?;
        if self.dry_run {
            return self.print_plan(&plan, &queue.unfit().await?, &already_moved(log, &plan).await?);
        }
        // Before relays are waited for, which somebody has to stop.
        queue.refuse_unfit().await?;
        store.migrate().await?;
        let moved = Move::new(store, log, queue, &plan, self.wait).run().await?;
        self.print_moved(
            moved,
            true,
            "what is still written to the queue goes to the log; set database.layout = \"log\" for relays and producers; for those \
             that call the SQL function `enqueue`, `use_log()` makes it write to the log alone",
        )
    }

    async fn abort(&self, store: &PostgresLogStore, queue: QueueMove<'_>) -> anyhow::Result<()> {
        match queue.progress().await? {
            MoveProgress::NotBegun => return self.print_aborted(false),
            MoveProgress::Begun => {}
            MoveProgress::Done => bail!(
                "this outbox was moved to the log, and there is no way back: what is written to the queue goes to the log; set \
                 database.layout = \"log\""
            ),
        }
        // What takes it back may be missing where an earlier version has begun it.
        store.migrate().await?;
        let since = Instant::now();
        loop {
            let waits_for = match tried(queue.unfence().await, USE_QUEUE)? {
                Tried::Done(was_begun) => return self.print_aborted(was_begun),
                Tried::Busy(waits_for) => waits_for,
            };
            if since.elapsed() >= self.wait {
                let users = match &waits_for {
                    WaitsFor::Transactions(_) => queue.in_the_way(true).await?,
                    _ => Vec::new(),
                };
                bail!(
                    "waited {} for {}; nothing was changed",
                    Readable(self.wait),
                    named(&waits_for, &users)
                );
            }
            sleep(PAUSE).await;
        }
    }

    fn print_aborted(&self, was_begun: bool) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ "aborted": was_begun }));
        }
        let done = if was_begun {
            "the move was taken back"
        } else {
            "no move was begun"
        };
        writeln!(out, "{done}: relays of the queue may claim")?;
        Ok(())
    }

    /// There is nothing in between: one transaction moves all of it.
    async fn move_on_sqlite(&self, store: &SqliteLogStore) -> anyhow::Result<()> {
        if self.abort {
            bail!(
                "a move on SQLite is one transaction: one that was cut short has moved nothing, and there is nothing to take back"
            );
        }
        if self.dry_run {
            return self.print_plan(
                &store.move_plan().await?,
                &store.unfit_to_move().await?,
                &OutboxStats::default(),
            );
        }
        // Before a log is made, which a file without a queue must not get, and before relays are waited for.
        store.unfit_to_move().await?.refuse(RENAME)?;
        store.migrate().await?;
        let since = Instant::now();
        let moved = loop {
            let plan = store.move_plan().await?;
            if plan.relays == 0
                && let Some(moved) = store.move_queue().await?
            {
                break moved;
            }
            if since.elapsed() >= self.wait {
                let waits_for = match plan.relays {
                    0 => WaitsFor::Claimed(plan.leased),
                    relays => WaitsFor::Relays(relays),
                };
                let names = match &waits_for {
                    WaitsFor::Relays(_) => relays(store).await?,
                    _ => Vec::new(),
                };
                bail!(
                    "waited {} for {}; nothing was moved",
                    Readable(self.wait),
                    named(&waits_for, &names)
                );
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
        writeln!(out, "moved {} to the log", messages(moved))?;
        writeln!(out, "{next}")?;
        Ok(())
    }

    /// Of a move that was begun with what is in the log.
    fn print_plan(&self, plan: &MovePlan, unfit: &Unfit, log: &OutboxStats) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({
                "would_move": plan.messages(), "pending": plan.pending, "waiting": plan.waiting, "dead": plan.dead,
                "processing": plan.processing, "relays": plan.relays, "fenced": plan.is_fenced,
                "redirected": plan.is_redirected, "unfit": unfit.count, "unfit_messages": unfit.examples,
                "in_log": log.undelivered() + log.dead,
            }));
        }
        writeln!(
            out,
            "would move {}: {} pending, {} waiting, {} dead, {} processing",
            messages(plan.messages()),
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
        } else if plan.is_fenced && is_empty(log) {
            writeln!(
                out,
                "a move was begun: relays of the queue claim nothing until it is run to its end, or taken back (--abort)"
            )?;
        } else if plan.is_fenced {
            writeln!(
                out,
                "a move was begun: relays of the queue claim nothing until it is run to its end; {} already",
                InLog(log)
            )?;
        } else if plan.relays == 1 {
            writeln!(out, "1 relay is alive: stop it first")?;
        } else if plan.relays > 1 {
            writeln!(out, "{} relays are alive: stop them first", plan.relays)?;
        }
        if unfit.count > 0 {
            writeln!(out, "{unfit}")?;
            writeln!(
                out,
                "nothing is moved before they are delivered, discarded or changed: see docs/log-layout.md"
            )?;
        }
        Ok(())
    }
}

/// What can be done about messages of a queue on SQLite that its log does not take.
const RENAME: &str =
    "write their ids as text, for which docs/log-layout.md has the statement, or delete them; then move again";

/// What is in the log of a move that was begun before.
async fn already_moved(log: &NativeLog, plan: &MovePlan) -> Result<OutboxStats, StoreError> {
    if !plan.is_fenced {
        return Ok(OutboxStats::default());
    }
    match log.stats().await {
        // Tables of an earlier version, which a move brings up to date first.
        Err(error) if error.kind == StoreErrorKind::SchemaMissing => Ok(OutboxStats::default()),
        stats => stats,
    }
}

/// Relays that were not heard for so long are not waited for.
const SILENCE: f64 = 15.0;

/// So many of them are named.
const NAMED: usize = 5;

const USE_QUEUE: &str = "the transactions that use the queue";
const ARE_OPEN: &str = "transactions of producers that are open";

/// What is waited for.
enum WaitsFor {
    /// So many have to stop.
    Relays(u64),
    /// So many messages they have under way.
    Claimed(u64),
    /// Those that have locks on the queue, in words.
    Transactions(&'static str),
    /// What is told by an error, as that another move is at work.
    Other(StoreError),
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relays(1) => write!(f, "1 relay to stop"),
            Self::Relays(more) => write!(f, "{more} relays to stop"),
            Self::Claimed(leased) => write!(f, "{} that a relay has claimed", messages(*leased)),
            Self::Transactions(which) => f.write_str(which),
            Self::Other(error) => write!(f, "a lock: {}", error.message),
        }
    }
}

/// The same with what it is by name, as far as that is known.
fn named(waits_for: &WaitsFor, names: &[String]) -> String {
    match names {
        [] => waits_for.to_string(),
        names => format!("{waits_for}: {}", names.join("; ")),
    }
}

/// How a step ended.
enum Tried<T> {
    Done(T),
    /// It is to be tried again.
    Busy(WaitsFor),
}

/// What is in the way of a step is what it would lock, or another move: that of a client which is gone, too, until the server has
/// noticed.
fn tried<T>(step: Result<MoveStep<T>, StoreError>, which: &'static str) -> Result<Tried<T>, StoreError> {
    match step {
        Ok(MoveStep::Done(done)) => Ok(Tried::Done(done)),
        Ok(MoveStep::Busy) => Ok(Tried::Busy(WaitsFor::Transactions(which))),
        Err(error) if error.kind == StoreErrorKind::Contention => Ok(Tried::Busy(WaitsFor::Other(error))),
        Err(error) => Err(error),
    }
}

/// The relays that are alive, as `posthaste status` names them.
async fn relays(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let Some(registry) = store.registry() else {
        return Ok(Vec::new());
    };
    let mut alive = registry.relays(DEFAULT_NAMESPACE).await?;
    alive.retain(|relay| relay.silent_seconds < SILENCE);
    let more = alive.len().saturating_sub(NAMED);
    let name = |relay: &RelayRecord| {
        let RelayRecord {
            worker,
            publisher,
            host,
            pid,
            ..
        } = relay;
        format!("{worker} ({publisher} on {host}, process {pid})")
    };
    let mut names: Vec<_> = alive.iter().take(NAMED).map(name).collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    Ok(names)
}

fn messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        more => format!("{more} messages"),
    }
}

/// `moved` comes next.
fn were(count: u64) -> String {
    match count {
        1 => "1 message was".to_owned(),
        more => format!("{more} messages were"),
    }
}

/// A move on its way.
struct Move<'a> {
    store: &'a PostgresLogStore,
    /// The same, to be asked what is in it.
    log: &'a NativeLog,
    queue: QueueMove<'a>,
    wait: Duration,
    bar: ProgressBar,
    moved: u64,
    /// Relays of the queue are kept from claiming.
    is_fenced: bool,
}

impl<'a> Move<'a> {
    fn new(
        store: &'a PostgresLogStore,
        log: &'a NativeLog,
        queue: QueueMove<'a>,
        plan: &MovePlan,
        wait: Duration,
    ) -> Self {
        let style = ProgressStyle::with_template("{prefix:>10} {bar:40.green} {pos:>7} of {len} messages");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            store,
            log,
            queue,
            wait,
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
        let since = Instant::now();
        loop {
            let plan = self.queue.plan().await?;
            // Whoever is alive later is a relay of the log, or is refused.
            if plan.is_fenced || plan.relays == 0 {
                break;
            }
            self.pause(since, &WaitsFor::Relays(plan.relays)).await?;
        }
        while let Tried::Busy(waits_for) = tried(self.queue.fence().await, USE_QUEUE)? {
            self.pause(since, &waits_for).await?;
        }
        self.is_fenced = true;
        loop {
            let plan = self.queue.plan().await?;
            if !plan.is_fenced {
                bail!(
                    "{} moved: the move was taken back meanwhile, and relays of the queue may claim",
                    were(self.moved)
                );
            }
            if plan.leased == 0 {
                break;
            }
            self.pause(since, &WaitsFor::Claimed(plan.leased)).await?;
        }
        let mut since = None;
        loop {
            self.move_most().await?;
            match tried(self.queue.redirect().await, ARE_OPEN).map_err(|error| self.failed(error))? {
                Tried::Done(moved) => {
                    self.count(moved);
                    return Ok(());
                }
                Tried::Busy(waits_for) => self.pause(*since.get_or_insert_with(Instant::now), &waits_for).await?,
            }
        }
    }

    /// What is left then is little, and moved while producers wait.
    async fn move_most(&mut self) -> anyhow::Result<()> {
        let mut since = None;
        loop {
            let batch = self.queue.move_batch(BATCH).await.map(MoveStep::Done);
            match tried(batch, USE_QUEUE).map_err(|error| self.failed(error))? {
                Tried::Done(moved) => {
                    self.count(moved);
                    if moved < u64::from(BATCH) {
                        return Ok(());
                    }
                    since = None;
                }
                Tried::Busy(waits_for) => self.pause(*since.get_or_insert_with(Instant::now), &waits_for).await?,
            }
        }
    }

    fn count(&mut self, moved: u64) {
        self.moved += moved;
        self.bar.inc(moved);
    }

    /// What was moved stays so.
    fn failed(&self, error: StoreError) -> anyhow::Error {
        anyhow::Error::from(error).context(format!("{} moved, and then", were(self.moved)))
    }

    /// What has been waited for since then is waited for a little longer, if it may be.
    async fn pause(&self, since: Instant, waits_for: &WaitsFor) -> anyhow::Result<()> {
        if since.elapsed() >= self.wait {
            let names = match waits_for {
                WaitsFor::Relays(_) => relays(self.store).await?,
                WaitsFor::Transactions(_) => self.queue.in_the_way(false).await?,
                WaitsFor::Claimed(_) | WaitsFor::Other(_) => Vec::new(),
            };
            bail!(
                "waited {} for {}; {} moved, and running it again goes on from here{}",
                Readable(self.wait),
                named(waits_for, &names),
                were(self.moved),
                self.standstill().await
            );
        }
        self.bar.set_message(format!("waits for {waits_for}"));
        sleep(PAUSE).await;
        Ok(())
    }

    /// What a move that goes no further leaves behind. It is taken back only while nothing is in the log, whoever has put it there.
    async fn standstill(&self) -> &'static str {
        if !self.is_fenced {
            return "";
        }
        match self.log.stats().await {
            Ok(log) if is_empty(&log) => {
                "; until it is through, or taken back (--abort), relays of the queue claim nothing"
            }
            _ => "; until it is through, relays of the queue claim nothing",
        }
    }
}
