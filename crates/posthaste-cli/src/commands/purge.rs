//! `posthaste purge`

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use humantime_serde::re::humantime::parse_duration;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_core::readable::Readable;
use posthaste_core::store::{PurgeRequest, Purgeable, Store};
use serde_json::json;

use super::namespace;
use super::spool::mark_thrown_away;
use crate::config::Config;
use crate::unserved::Unserved;
use crate::{schema, terminal, wiring};

/// Remove delivered messages and expired dedupe keys, or dead messages
///
/// The relay does this by itself, by `relay.retention` and `relay.dead_retention`; this command is for doing it now. Nothing
/// that waits to be delivered is removed, and dead messages only with --dead.
///
/// Of Posthaste's own log on PostgreSQL delivered messages are not removed by rows, but by whole segments, when these are closed
/// and all of their rows are settled and old: a relay with `relay.retention` does that, and what is in the segment that is open
/// stays.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Purge {
    /// Delivered, or dead, for so long, such as 30d [default: `relay.retention`, or `relay.dead_retention`]
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Remove dead messages, and nothing else
    #[arg(long)]
    dead: bool,
    /// In this namespace alone [default: all of them]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only say how many rows that would be, by table and age
    #[arg(long)]
    dry_run: bool,
    /// Do it, though it cannot be undone: needed with --dead, and for everything (--older-than 0s)
    #[arg(long)]
    yes: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste purge --dry-run
  posthaste purge --older-than 30d
  posthaste purge --dead --older-than 90d --dry-run
  posthaste purge --dead --older-than 90d --yes";

/// Rows of one statement: few enough that its locks are short.
const BATCH: u32 = 1_000;

const DAY: Duration = Duration::from_hours(24);

/// What is counted where no age was named.
const AGES: [Duration; 4] = [
    DAY,
    DAY.saturating_mul(7),
    DAY.saturating_mul(30),
    DAY.saturating_mul(90),
];

impl Purge {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        namespace::ensure_known(&config.database, self.namespace.as_deref())?;
        let store = schema::existing(&config.database).await?;
        let namespace = self.namespace.as_ref().unwrap_or(&config.relay.scope.namespace);
        if let Some(unserved) = Unserved::look(&*store, &config.database, namespace).await? {
            unserved.refuse_if_moved(&config.database)?;
            unserved.note();
        }
        let relay = &config.relay;
        let (setting, kept) = if self.dead {
            ("relay.dead_retention", relay.dead_retention)
        } else {
            ("relay.retention", relay.retention)
        };
        let age = self.older_than.or(kept.age());
        if self.dry_run {
            let ages = age.map_or(AGES.to_vec(), |age| vec![age]);
            self.count(&*store, &ages).await?;
            self.note_segments(config);
            return Ok(());
        }
        let Some(age) = age else {
            bail!("{setting} is off, so nothing is old: say --older-than, such as --older-than 30d");
        };
        if self.dead && !self.yes {
            bail!("dead messages were never delivered and cannot be brought back; add --yes if you mean it");
        }
        if age.is_zero() && !self.yes {
            bail!("this removes every delivered message, however young; add --yes if you mean it");
        }
        self.remove(&*store, age, config).await?;
        self.note_segments(config);
        Ok(())
    }

    /// Nothing is removed of a log in which everything is delivered, and older, while its one segment is open.
    fn note_segments(&self, config: &Config) {
        if !self.dead && wiring::has_segments(&config.database) {
            terminal::note(
                &"what a log has delivered is removed by whole segments, when they are closed and all of their rows are settled: a \
                  relay does that by itself if relay.retention is set; see docs/retention.md",
            );
        }
    }

    fn request(&self, age: Duration) -> PurgeRequest {
        let namespace = self.namespace.clone();
        if self.dead {
            return PurgeRequest {
                namespace,
                dead: Some(age),
                limit: BATCH,
                ..PurgeRequest::default()
            };
        }
        PurgeRequest {
            namespace,
            ..PurgeRequest::older_than(age, BATCH)
        }
    }

    async fn count(&self, store: &dyn Store, ages: &[Duration]) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        let mut by_age = Vec::new();
        for age in ages {
            let found = store.purgeable(&self.request(*age)).await?;
            if self.json {
                let tables = BTreeMap::from(tables(found));
                let age = Readable(*age).to_string();
                by_age.push(json!({ "older_than": age, "would_remove": found.rows(), "tables": tables }));
                continue;
            }
            let which = if ages.len() > 1 {
                format!(" older than {}", Readable(*age))
            } else {
                String::new()
            };
            writeln!(out, "would remove {} rows{which}{}", found.rows(), split(found))?;
        }
        match (self.json, by_age.as_slice()) {
            (false, _) => Ok(()),
            (true, [one]) => out.json(one),
            (true, _) => out.json(&json!({ "ages": by_age })),
        }
    }

    async fn remove(&self, store: &dyn Store, age: Duration, config: &Config) -> anyhow::Result<()> {
        let request = self.request(age);
        let bar = bar(store.purgeable(&request).await?.rows());
        let mut removed = Purgeable::default();
        let mut dead = Vec::new();
        let ended = loop {
            let purged = match store.purge(&request).await {
                Ok(purged) => purged,
                Err(error) => break Err(error),
            };
            bar.inc(purged.rows());
            removed.delivered += purged.delivered;
            removed.dead += purged.dead.len() as u64;
            removed.cursor += purged.cursor;
            removed.dedupe += purged.dedupe;
            if purged.rows() == 0 {
                break Ok(());
            }
            dead.extend(purged.dead);
        };
        bar.finish_and_clear();
        // What was removed before it failed is gone all the same.
        mark_thrown_away(config, self.namespace.as_deref(), &dead)?;
        ended?;
        let mut out = terminal::stdout();
        if self.json {
            let tables = BTreeMap::from(tables(removed));
            return out.json(&json!({ "removed": removed.rows(), "tables": tables }));
        }
        writeln!(out, "removed {} rows{}", removed.rows(), split(removed))?;
        Ok(())
    }
}

/// Shown on a terminal only.
fn bar(rows: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} {bar:40.green} {pos:>7} of {len} rows");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(rows).with_style(style).with_prefix("removed")
}

fn tables(rows: Purgeable) -> [(&'static str, u64); 4] {
    let Purgeable {
        delivered,
        dead,
        cursor,
        dedupe,
    } = rows;
    [
        ("outbox", delivered),
        ("dead", dead),
        ("cursor", cursor),
        ("dedupe", dedupe),
    ]
}

/// Which tables they are of, where they are of several.
fn split(rows: Purgeable) -> String {
    let tables = tables(rows).into_iter().filter(|(_, rows)| *rows > 0);
    let parts: Vec<_> = tables.map(|(table, rows)| format!("{table} {rows}")).collect();
    if parts.len() > 1 {
        format!(" ({})", parts.join(", "))
    } else {
        String::new()
    }
}
