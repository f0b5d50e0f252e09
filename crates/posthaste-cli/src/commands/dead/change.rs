//! `posthaste dead replay` and `posthaste dead discard`

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, RefusedRow, Store, StoreErrorKind};
use posthaste_core::{MessageId, StoreError};
use serde_json::json;

use super::selection::Selection;
use crate::commands::spool::mark_thrown_away;
use crate::config::Config;
use crate::terminal;

/// Messages of one statement: few enough that its locks are short.
const BATCH: usize = 500;

/// Messages that are read at once, with their payloads.
const PAGE: u64 = 100;

/// So many that are refused are searched for: then it is not about single messages.
const MAX_REFUSED_SHOWN: usize = 10;

/// How long one statement's messages are waited for while they are locked, and how long between two tries.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// Make dead messages pending again, with a fresh count of attempts
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste dead replay 0192f0c1-7e3a-7c55-9d0e-3f6a1b2c4d5e
  posthaste dead replay --topic orders --limit 100 --dry-run
  posthaste dead replay --all")]
pub(super) struct Replay {
    #[command(flatten)]
    which: Which,
}

/// Remove dead messages for good
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste dead discard --topic orders --key 42 --dry-run
  posthaste dead discard --topic orders --key 42 --yes
  posthaste dead discard --all --yes")]
pub(super) struct Discard {
    #[command(flatten)]
    which: Which,
    /// Needed, because nothing brings them back
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct Which {
    #[command(flatten)]
    selection: Selection,
    /// Needed to mean every dead message
    #[arg(long)]
    all: bool,
    /// At most so many, oldest first [default: all that match]
    #[arg(long)]
    limit: Option<u64>,
    /// Only say which messages that would be
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON object with the ids
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) async fn run(self, store: &dyn Store, config: &Config) -> anyhow::Result<()> {
        self.which.change(Verb::Replay, store, config).await
    }
}

impl Discard {
    /// Before anything is connected to.
    pub(super) fn confirm(&self) -> anyhow::Result<()> {
        if !self.yes && !self.which.dry_run {
            bail!("discarded messages cannot be brought back; add --yes if you mean it");
        }
        Ok(())
    }

    pub(super) async fn run(self, store: &dyn Store, config: &Config) -> anyhow::Result<()> {
        self.which.change(Verb::Discard, store, config).await
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Replay,
    Discard,
}

impl Which {
    async fn change(self, verb: Verb, store: &dyn Store, config: &Config) -> anyhow::Result<()> {
        if self.selection.is_everything() && !self.all {
            bail!("this would mean every dead message; give ids, --topic, --key or --tenant, or --all if you mean it");
        }
        let filter = self.selection.filter(config)?;
        let asked = filter.ids.clone();
        // Those that are dead now: what is replayed may die again at once, and is not meant a second time.
        let matching = matching(store, &filter, self.limit.unwrap_or(u64::MAX)).await?;
        if self.dry_run {
            self::print(verb.tense(true), &matching, self.json)?;
            return self::account_for(&asked, &matching, self.limit, store).await;
        }
        let Change {
            changed,
            refused,
            failed,
        } = verb.apply_all(store, &filter, &matching).await;
        self::print(verb.tense(false), &changed, self.json)?;
        if matches!(verb, Verb::Discard) {
            mark_thrown_away(config, filter.namespace.as_deref(), &changed)?;
        }
        let said = self::say_refused(verb, &refused);
        if let Some(error) = failed {
            // What was found before it ended stands beside why it ended.
            return Err(match said {
                Err(refused) => refused.context(error),
                Ok(()) => error.into(),
            });
        }
        said?;
        self::account_for(&asked, &changed, self.limit, store).await
    }
}

/// What became of the messages that were meant.
#[derive(Debug, Default)]
struct Change {
    changed: Vec<MessageId>,
    refused: Vec<RefusedRow>,
    /// Why it ended early.
    failed: Option<StoreError>,
}

impl Verb {
    /// One message that the table refuses to change keeps no other: it is searched for by halving.
    async fn apply_all(self, store: &dyn Store, filter: &Filter, ids: &[MessageId]) -> Change {
        let mut change = Change::default();
        let mut groups: Vec<&[MessageId]> = ids.chunks(BATCH).rev().collect();
        while let Some(group) = groups.pop() {
            match self.apply(store, filter, group).await {
                Ok(changed) => change.changed.extend(changed),
                Err(error) if error.kind.may_be_a_refusal() && change.refused.len() < MAX_REFUSED_SHOWN => {
                    if let [id] = group {
                        let error = error.to_string();
                        change.refused.push(RefusedRow { id: *id, error });
                    } else {
                        let (first, rest) = group.split_at(group.len() / 2);
                        groups.extend([rest, first]);
                    }
                }
                Err(error) => {
                    change.failed = Some(error);
                    break;
                }
            }
        }
        change
    }

    /// Waits for whoever has one of them: to go on past it would change the order of its key.
    async fn apply(self, store: &dyn Store, filter: &Filter, ids: &[MessageId]) -> Result<Vec<MessageId>, StoreError> {
        let these = Filter {
            ids: ids.to_vec(),
            ..filter.clone()
        };
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let started = Instant::now();
        loop {
            let changed = match self {
                Self::Replay => store.replay(&these, limit).await,
                Self::Discard => store.discard(&these, limit).await,
            };
            match changed {
                Err(error) if error.kind == StoreErrorKind::Contention && started.elapsed() < LOCK_TIMEOUT => {
                    tokio::time::sleep(PAUSE).await;
                }
                changed => return changed,
            }
        }
    }

    /// What happened to messages, or would.
    fn tense(self, conditional: bool) -> &'static str {
        match (self, conditional) {
            (Self::Replay, false) => "replayed",
            (Self::Replay, true) => "would replay",
            (Self::Discard, false) => "discarded",
            (Self::Discard, true) => "would discard",
        }
    }
}

/// The first messages that match, oldest first.
async fn matching(store: &dyn Store, filter: &Filter, mut left: u64) -> anyhow::Result<Vec<MessageId>> {
    let mut found: Vec<MessageId> = Vec::new();
    while left > 0 {
        let limit = u32::try_from(left.min(PAGE)).unwrap_or(u32::MAX);
        let page = store.list(filter, found.last().copied(), limit).await?;
        if page.is_empty() {
            break;
        }
        left = left.saturating_sub(page.len() as u64);
        found.extend(page.iter().map(|record| record.message.id));
    }
    Ok(found)
}

fn say_refused(verb: Verb, refused: &[RefusedRow]) -> anyhow::Result<()> {
    if refused.is_empty() {
        return Ok(());
    }
    let each: Vec<_> = refused
        .iter()
        .map(|row| format!("message {} cannot be {}: {}", row.id, verb.tense(false), row.error))
        .collect();
    bail!("{}; fix what refuses it, and run this again", each.join("; "))
}

/// Those that were asked for and not found. As they are written, in small letters: a table may keep as text, and in
/// capitals, what was read as a UUID here.
fn missing(asked: &[MessageId], found: &[MessageId]) -> Vec<MessageId> {
    let written = |id: &MessageId| id.to_string().to_lowercase();
    let found: HashSet<String> = found.iter().map(written).collect();
    let missing = asked.iter().filter(|id| !found.contains(&written(id)));
    missing.copied().collect()
}

/// Whoever names a message has to hear if nothing was done with it, and why.
async fn account_for(
    asked: &[MessageId],
    found: &[MessageId],
    limit: Option<u64>,
    store: &dyn Store,
) -> anyhow::Result<()> {
    let limit_reached = limit.is_some_and(|limit| found.len() as u64 >= limit);
    let mut reasons = Vec::new();
    for id in missing(asked, found) {
        match store.show(id).await? {
            None => reasons.push(format!("there is no message {id}")),
            Some(record) if record.state != State::Dead => {
                reasons.push(format!("message {id} is not dead: it is {}", record.state.as_str()));
            }
            Some(_) if limit_reached => {}
            Some(record) => reasons.push(format!(
                "message {id} is dead, but the other conditions exclude it (it has namespace {:?} and topic {:?})",
                record.message.namespace.unwrap_or_default(),
                record.message.topic
            )),
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    bail!(
        "{}; `posthaste dead list` shows those that are dead",
        reasons.join("; ")
    )
}

fn print(word: &str, messages: &[MessageId], json: bool) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if json {
        out.json(&json!({ word.replace(' ', "_"): messages.len(), "ids": messages }))?;
    } else {
        writeln!(out, "{word} {}", messages.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_in_whatever_letters_its_table_has_the_id() {
        let asked: Vec<MessageId> = ["0199aaaa-bbbb-7ccc-8ddd-eeeeffff0006", "7", "other"]
            .map(|id| id.parse().expect("it is an id"))
            .into();
        let found = [
            MessageId::text("0199AAAA-BBBB-7CCC-8DDD-EEEEFFFF0006"),
            MessageId::text("7"),
        ];
        assert_eq!(missing(&asked, &found), asked[2..]);
    }
}
