//! `posthaste status`

mod condition;

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use posthaste_core::StoreError;
use posthaste_core::breaker::CircuitState;
use posthaste_core::readable::Readable;
use posthaste_core::store::{OutboxStats, RelayRecord, ShardStatus, Store};
use posthaste_relay::Spool;
use posthaste_sql::TableMap;
use serde::Serialize;

use self::condition::{Condition, Figures};
use super::namespace;
use crate::config::Config;
use crate::schema;
use crate::terminal::{self, Printer};
use crate::unserved::{Unserved, is_empty};
use crate::wiring::{self, NativeLog};

/// Show what is in the outbox, and which relays serve it
///
/// `pending` counts all that is not delivered, also messages that wait for a retry or for a time of their own (`not_before`),
/// and `oldest` is the age of the oldest of them. What is in the other layout of an outbox that was moved is counted with it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Go on printing once a second until interrupted
    #[arg(long)]
    watch: bool,
    /// The namespace to look at [default: relay.scope.namespace]
    #[arg(long)]
    namespace: Option<String>,
    /// End with exit code 1 if this is so, and say which: `pending`, `waiting`, `processing`, `dead`, `oldest`, `relays`
    /// (those alive), or of a log `shard-lag` (the largest of its shards) or `unread-shards` (those that nobody reads), one of
    /// `> >= < <= =`, and a number, or for `oldest` a duration; may be repeated
    #[arg(long, value_name = "CONDITION", conflicts_with = "watch")]
    fail_if: Vec<Condition>,
}

const EXAMPLES: &str = "\
Examples:
  posthaste status
  posthaste status --watch
  posthaste status --fail-if 'dead>0' --fail-if 'oldest>5m'    for cron and monitoring
  posthaste status --fail-if 'unread-shards>0' --fail-if 'shard-lag>10000'    the same of a log
  posthaste status --json | jq .dead
  posthaste status --json | jq '.relays[] | select(.circuit != \"closed\")'";

const INTERVAL: Duration = Duration::from_secs(1);

/// Relays that were not heard for so long are not alive: three of their heartbeats.
const SILENCE: f64 = 15.0;

#[derive(Debug, Serialize)]
struct Found<'a> {
    database: String,
    /// Of Posthaste's own tables; 0 for those of a map.
    schema_version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<&'a str>,
    namespace: &'a str,
    /// What is in the outbox, whichever of its layouts it is in: conditions watch over all of it.
    #[serde(flatten)]
    stats: OutboxStats,
    /// What waits in a queue beside the log.
    #[serde(skip_serializing_if = "is_empty")]
    queue: OutboxStats,
    /// What is in a log beside the queue.
    #[serde(skip_serializing_if = "is_empty")]
    log: OutboxStats,
    /// Why the queue is not where messages are.
    #[serde(skip_serializing_if = "Option::is_none")]
    unserved: Option<String>,
    /// Why what is in the log is not among the figures.
    #[serde(skip)]
    uncounted: Option<String>,
    /// Dead letters in the file of the safety net, as far as this machine has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    spooled: Option<usize>,
    relays: Vec<FoundRelay>,
    /// Of a log that has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shards: Vec<ShardStatus>,
    /// Shards of a log in which new messages count as read, and what sets that right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set_back: Vec<String>,
}

impl Found<'_> {
    /// What is to be done about messages in the layout that is not served.
    fn elsewhere(&self) -> Option<String> {
        let queue = (!is_empty(&self.queue)).then(|| {
            format!(
                "of these {} wait in the queue and {} are dead there; stop the relays of the log, then run `posthaste log move`",
                self.queue.undelivered(),
                self.queue.dead
            )
        });
        self.unserved.clone().or(queue)
    }

    /// How many relays are alive.
    fn alive(&self) -> usize {
        self.relays.iter().filter(|relay| relay.alive).count()
    }
}

#[derive(Debug, Serialize)]
struct FoundRelay {
    alive: bool,
    #[serde(flatten)]
    relay: RelayRecord,
}

impl From<RelayRecord> for FoundRelay {
    fn from(relay: RelayRecord) -> Self {
        let alive = relay.silent_seconds < SILENCE;
        Self { alive, relay }
    }
}

impl Status {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        namespace::ensure_in_log(&config.database, self.namespace.as_deref())?;
        let store = schema::existing(&config.database).await?;
        let namespace = self.namespace.as_ref().unwrap_or(&config.relay.scope.namespace);
        let log = wiring::served_log(&config.database).await?;
        loop {
            let found = look(&*store, log.as_ref(), config, namespace).await?;
            self.print(&found)?;
            if !self.watch {
                return self.judge(&found);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Fails if a condition is met that it should fail for.
    fn judge(&self, found: &Found<'_>) -> anyhow::Result<()> {
        let figures = Figures {
            stats: &found.stats,
            alive: found.alive(),
            shards: &found.shards,
        };
        let mut met = Vec::new();
        for condition in &self.fail_if {
            met.extend(condition.met(figures).map_err(anyhow::Error::msg)?);
        }
        if met.is_empty() {
            return self.refuse_uncounted(found);
        }
        met.extend(found.elsewhere());
        bail!("{}", met.join("; "));
    }

    /// Conditions that are not met by figures in which most is missing would watch over nothing.
    fn refuse_uncounted(&self, found: &Found<'_>) -> anyhow::Result<()> {
        match (&found.unserved, &found.uncounted) {
            (Some(unserved), Some(why)) if !self.fail_if.is_empty() => {
                bail!("what is in the log cannot be counted ({why}): {unserved}")
            }
            _ => Ok(()),
        }
    }

    fn print(&self, found: &Found<'_>) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.json {
            return out.json(found);
        }
        if self.watch {
            out.clear()?;
        }
        let stats = &found.stats;
        let oldest = Duration::from_secs_f64(stats.oldest_seconds.max(0.0).floor());
        match found.map {
            Some(map) => writeln!(out, "database    {} (table map {map})", found.database)?,
            None => writeln!(
                out,
                "database    {} (schema version {})",
                found.database, found.schema_version
            )?,
        }
        writeln!(out, "namespace   {}", found.namespace)?;
        writeln!(
            out,
            "pending     {} (of these {} wait for a retry or a later time)",
            stats.pending, stats.waiting
        )?;
        writeln!(out, "processing  {}", stats.processing)?;
        let remedy = if stats.dead > 0 {
            "  see `posthaste dead list`"
        } else {
            ""
        };
        writeln!(out, "dead        {}{remedy}", stats.dead)?;
        writeln!(out, "oldest      {}", Readable(oldest))?;
        if !is_empty(&found.queue) {
            let (messages, dead) = (found.queue.undelivered(), found.queue.dead);
            writeln!(
                out,
                "queue       {messages} of these wait in the queue, and {dead} of the dead ones are there, which relays of the log do \
                 not serve; stop these, then run `posthaste log move`"
            )?;
        }
        if let Some(unserved) = &found.unserved {
            writeln!(out, "log         {unserved}")?;
        }
        if let Some(spooled) = found.spooled {
            let remedy = if spooled > 0 {
                "  dead letters that the database did not take; see `posthaste spool list`"
            } else {
                ""
            };
            writeln!(out, "spooled     {spooled}{remedy}")?;
        }
        print_relays(&mut out, found)?;
        if !found.shards.is_empty() {
            print_shards(&mut out, &found.shards)?;
        }
        print_set_back(&mut out, &found.set_back)?;
        Ok(())
    }
}

fn print_relays(out: &mut Printer<impl Write>, found: &Found<'_>) -> std::io::Result<()> {
    if found.map.is_some() {
        return writeln!(out, "relays      not known: the tables of a map have no place for them");
    }
    let alive = found.alive();
    let remedy = if alive == 0 && found.stats.pending > 0 {
        "  nothing is delivered; start one with `posthaste run`"
    } else {
        ""
    };
    writeln!(out, "relays      {alive} alive{remedy}")?;
    for FoundRelay { alive, relay } in &found.relays {
        let RelayRecord {
            worker,
            publisher,
            host,
            pid,
            version,
            ..
        } = relay;
        let leads = if relay.leads { ", leads" } else { "" };
        writeln!(
            out,
            "  {worker}  {publisher} on {host}, process {pid}, version {version}{leads}"
        )?;
        if *alive {
            writeln!(out, "    {}", circuit(relay))?;
        } else {
            let silent = Duration::from_secs_f64(relay.silent_seconds.floor());
            writeln!(
                out,
                "    not heard for {}; it died or cannot reach the database",
                Readable(silent)
            )?;
        }
    }
    Ok(())
}

/// Who reads which shard, and how far.
pub fn print_shards(out: &mut Printer<impl Write>, shards: &[ShardStatus]) -> std::io::Result<()> {
    writeln!(
        out,
        "{:>5}  {:36}  {:>7}  {:>10}  {:>12}  {:>7}  leased until",
        "shard", "owner", "epoch", "lag", "position", "process"
    )?;
    for shard in shards {
        let owner = match shard.owner {
            Some(owner) => owner.to_string(),
            None if shard.readable => "nobody".to_owned(),
            None => format!("waits for generation {}", shard.generation - 1),
        };
        let until = shard
            .leased_until
            .map(|until| until.format("%Y-%m-%d %H:%M:%S UTC").to_string());
        writeln!(
            out,
            "{:>5}  {owner:36}  {:>7}  {:>10}  {:>12}  {:>7}  {}",
            shard.shard,
            shard.epoch,
            shard.lag,
            shard.position,
            shard.process.map_or("-".to_owned(), |process| process.to_string()),
            until.as_deref().unwrap_or("-")
        )?;
    }
    Ok(())
}

/// Shards in which new messages would not be delivered.
pub fn print_set_back(out: &mut Printer<impl Write>, set_back: &[String]) -> std::io::Result<()> {
    set_back
        .iter()
        .try_for_each(|problem| writeln!(out, "error: {problem}"))
}

fn circuit(relay: &RelayRecord) -> String {
    let since = relay.circuit_since.format("%Y-%m-%d %H:%M:%S UTC");
    let given = relay.circuit_reason.as_deref();
    let reason = given.unwrap_or("the broker is unavailable");
    match (relay.circuit, given) {
        (CircuitState::Closed, Some(trouble)) => format!("circuit closed since {since}, but {trouble}"),
        (CircuitState::Closed, None) => format!("circuit closed since {since}"),
        (CircuitState::HalfOpen, _) => {
            format!("circuit half-open since {since}, trying the broker again after: {reason}")
        }
        (CircuitState::Open, _) => format!("circuit open since {since}, nothing is tried: {reason}"),
    }
}

async fn look<'a>(
    store: &dyn Store,
    served_log: Option<&NativeLog>,
    config: &'a Config,
    namespace: &'a str,
) -> anyhow::Result<Found<'a>> {
    let unserved = Unserved::look(store, &config.database, namespace).await?;
    let log = unserved
        .as_ref()
        .map(|unserved| unserved.log.clone())
        .unwrap_or_default();
    let queue = store.left_in_queue().await?;
    // What waits in the queue beside a log is counted with the log.
    let mut stats = store.stats(namespace).await?.with_queue(&log);
    stats.dead += queue.dead + log.dead;
    let set_back = match served_log {
        Some(log) => log.sequences_set_back().await?,
        None => Vec::new(),
    };
    Ok(Found {
        database: config.database.url().to_string(),
        schema_version: store.applied().await?.into_iter().max().unwrap_or_default(),
        map: config.database.table_map().map(TableMap::name),
        namespace,
        stats,
        queue,
        log,
        uncounted: unserved.as_ref().and_then(|unserved| unserved.uncounted.clone()),
        unserved: unserved.map(|unserved| unserved.to_string()),
        spooled: spooled(config),
        relays: relays(store, namespace)
            .await?
            .into_iter()
            .map(FoundRelay::from)
            .collect(),
        shards: store.shards().await?,
        set_back,
    })
}

/// None without a file, or where it cannot be read: it may be on another machine, or another user's.
fn spooled(config: &Config) -> Option<usize> {
    let spool = config.safety_net.spool()?;
    Some(Spool::new(spool).read().ok()?.open.len())
}

/// None where there is no list of them.
async fn relays(store: &dyn Store, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
    match store.registry() {
        Some(registry) => registry.relays(namespace).await,
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use uuid::Uuid;

    use super::*;

    fn relay(silent_seconds: f64, circuit: CircuitState) -> FoundRelay {
        FoundRelay::from(RelayRecord {
            worker: Uuid::nil(),
            namespace: "default".into(),
            publisher: "kafka".into(),
            host: "h".into(),
            pid: 7,
            version: "1".into(),
            started_at: DateTime::<Utc>::UNIX_EPOCH,
            seen_at: DateTime::<Utc>::UNIX_EPOCH,
            silent_seconds,
            circuit,
            circuit_since: DateTime::<Utc>::UNIX_EPOCH,
            circuit_reason: (circuit != CircuitState::Closed).then(|| "connection refused".into()),
            leads: false,
        })
    }

    #[test]
    fn an_open_circuit_says_since_when_and_why_and_a_silent_relay_that_it_is_silent() {
        let found = Found {
            database: "d".into(),
            schema_version: 3,
            map: None,
            namespace: "default",
            stats: OutboxStats::default(),
            queue: OutboxStats::default(),
            log: OutboxStats::default(),
            unserved: None,
            uncounted: None,
            spooled: None,
            relays: vec![
                relay(1.0, CircuitState::Open),
                relay(14.9, CircuitState::HalfOpen),
                relay(75.2, CircuitState::Closed),
            ],
            shards: Vec::new(),
            set_back: Vec::new(),
        };
        let mut out = Printer::on(Vec::new());
        print_relays(&mut out, &found).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "relays      2 alive");
        assert!(
            lines[2].contains("circuit open since 1970-01-01 00:00:00 UTC") && lines[2].contains("connection refused")
        );
        assert!(
            lines[4].contains("half-open") && lines[4].contains("connection refused"),
            "{text}"
        );
        assert!(lines[6].contains("not heard for 1m 15s"), "{text}");
    }

    #[test]
    fn each_shard_shows_its_owner_or_that_it_has_none() {
        let shard = |shard, owner| ShardStatus {
            shard,
            owner,
            epoch: 7,
            lag: 12,
            position: 4_711,
            generation: 2,
            readable: shard < 2,
            leased_until: owner.map(|_| DateTime::<Utc>::UNIX_EPOCH),
            process: owner.map(|_| 77),
        };
        let mut out = Printer::on(Vec::new());
        let shards = [shard(0, None), shard(1, Some(Uuid::nil())), shard(2, None)];
        print_shards(&mut out, &shards).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(lines[1], ["0", "nobody", "7", "12", "4711", "-", "-"]);
        let nil = Uuid::nil().to_string();
        assert_eq!(
            lines[2],
            ["1", &nil, "7", "12", "4711", "77", "1970-01-01", "00:00:00", "UTC"]
        );
        assert_eq!(lines[3][..5], ["2", "waits", "for", "generation", "1"]);
    }
}
