//! `posthaste dead replay` and `posthaste dead discard`

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, RefusedRow, Store, StoreErrorKind};
use posthaste_core::{MessageId, StoreError};
use serde_json::json;

use super::PAGE;
use super::named::{self, Named, written};
use super::selection::Selection;
use crate::commands::spool::mark_thrown_away;
use crate::config::Config;
use crate::terminal;
use crate::unserved::Unserved;

/// Messages of one statement: few enough that its locks are short.
const BATCH: usize = 500;

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
    pub(super) fn namespace(&self) -> Option<&str> {
        self.which.selection.namespace()
    }

    pub(super) async fn run(
        self,
        store: &dyn Store,
        config: &Config,
        unserved: Option<&Unserved>,
    ) -> anyhow::Result<()> {
        self.which.change(Verb::Replay, store, config, unserved).await
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

    pub(super) fn namespace(&self) -> Option<&str> {
        self.which.selection.namespace()
    }

    pub(super) async fn run(
        self,
        store: &dyn Store,
        config: &Config,
        unserved: Option<&Unserved>,
    ) -> anyhow::Result<()> {
        self.which.change(Verb::Discard, store, config, unserved).await
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Replay,
    Discard,
}

impl Which {
    async fn change(
        self,
        verb: Verb,
        store: &dyn Store,
        config: &Config,
        unserved: Option<&Unserved>,
    ) -> anyhow::Result<()> {
        if self.selection.is_everything() && !self.all {
            bail!("this would mean every dead message; give ids, --topic, --key or --tenant, or --all if you mean it");
        }
        if let Some(unserved) = unserved {
            unserved.refuse_if_moved(&config.database)?;
            unserved.note();
        }
        let mut filter = self.selection.filter(config)?;
        let asked = named::find(store, &filter.ids).await?;
        filter.ids = named::rows(&asked);
        // Those that are dead now: what is replayed may die again at once, and is not meant a second time.
        let matching = matching(store, &filter, self.limit.unwrap_or(u64::MAX)).await?;
        if self.dry_run {
            self::print(verb.tense(true), &matching, self.json)?;
            self::account_for(&asked, &matching, self.limit, store).await?;
            return self::refuse_elsewhere(verb, &matching, unserved);
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
        self::account_for(&asked, &changed, self.limit, store).await?;
        self::refuse_elsewhere(verb, &changed, unserved)
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
        let limit = u32::try_from(left).unwrap_or(u32::MAX).min(PAGE);
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

/// Those that were asked for and not found.
fn missing<'a>(asked: &'a [Named], found: &[MessageId]) -> Vec<&'a Named> {
    let found: HashSet<String> = found.iter().map(written).collect();
    let is_missing = |named: &&Named| !named.rows.iter().any(|row| found.contains(&written(row)));
    asked.iter().filter(is_missing).collect()
}

/// Whoever names a message has to hear if nothing was done with it, and why.
async fn account_for(
    asked: &[Named],
    found: &[MessageId],
    limit: Option<u64>,
    store: &dyn Store,
) -> anyhow::Result<()> {
    let limit_reached = limit.is_some_and(|limit| found.len() as u64 >= limit);
    let mut reasons = Vec::new();
    for Named { asked, rows, state } in missing(asked, found) {
        match state {
            None => reasons.push(format!("there is no message {asked}")),
            Some(State::Dead) if limit_reached => {}
            Some(State::Dead) => reasons.push(passed_over(*asked, rows, store).await?),
            Some(state) => reasons.push(not_dead(*asked, *state)),
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

/// Why nothing was done with a message that was dead a moment ago.
async fn passed_over(asked: MessageId, rows: &[MessageId], store: &dyn Store) -> anyhow::Result<String> {
    for row in rows {
        match store.show(*row).await? {
            None => {}
            Some(record) if record.state != State::Dead => return Ok(not_dead(asked, record.state)),
            Some(record) => {
                return Ok(format!(
                    "message {asked} is dead, but the other conditions exclude it (it has namespace {:?} and topic {:?})",
                    record.message.namespace.unwrap_or_default(),
                    record.message.topic
                ));
            }
        }
    }
    Ok(format!("there is no message {asked} any more"))
}

fn not_dead(asked: MessageId, state: State) -> String {
    format!("message {asked} is not dead: it is {}", state.as_str())
}

/// Whoever meant all dead messages and changed none has to hear that there are some elsewhere.
fn refuse_elsewhere(verb: Verb, changed: &[MessageId], unserved: Option<&Unserved>) -> anyhow::Result<()> {
    match unserved.filter(|unserved| changed.is_empty() && unserved.log.dead > 0) {
        Some(unserved) => bail!("nothing is {}: {unserved}", verb.tense(false)),
        None => Ok(()),
    }
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
        let asked = ["0199aaaa-bbbb-7ccc-8ddd-eeeeffff0006", "7", "other"].map(|id| {
            let asked = id.parse().expect("it is an id");
            Named {
                asked,
                rows: vec![asked],
                state: Some(State::Dead),
            }
        });
        let found = [
            MessageId::text("0199AAAA-BBBB-7CCC-8DDD-EEEEFFFF0006"),
            MessageId::text("7"),
        ];
        let missing: Vec<_> = missing(&asked, &found).iter().map(|named| named.asked).collect();
        assert_eq!(missing, [MessageId::text("other")]);
    }
}
