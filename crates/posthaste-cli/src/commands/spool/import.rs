//! `posthaste spool import`

use std::fs::File;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_core::lifecycle::State;
use posthaste_core::store::{DeadLetter, Restored, Store, StoreErrorKind};
use posthaste_relay::{Letter, Line, Open, Spool};
use serde::Serialize;

use super::{Which, warn_of_others};
use crate::config::Config;
use crate::terminal;
use crate::unserved::Unserved;
use crate::{schema, terminal::harmless_line};

/// Letters are marked as imported after so many, with one write.
const MARK_EVERY: usize = 100;

/// So many that cannot be imported are told one by one.
const MAX_TOLD: usize = 10;

/// Bring dead letters back to the database
///
/// A letter whose row is gone becomes a dead row under the id that it had, one whose row is dead gets its entry in the
/// dead-letter table. What was delivered, replayed or is in a relay's hands is left alone. Importing twice, or two at a time,
/// changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste spool import --dry-run
  posthaste spool import
  posthaste spool import --json /mnt/backup/dead-letters.jsonl")]
pub(super) struct Import {
    #[command(flatten)]
    which: Which,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// What became of the letters.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Back in the database.
    imported: u64,
    /// In the database already: dead, delivered, or replayed and delivered.
    there: u64,
    /// In the outbox and not dead: a relay has it, or will.
    waiting: u64,
    /// Of another namespace.
    other_namespace: u64,
    failed: u64,
    /// Cut short by a crash.
    torn_lines: u64,
    /// No letters that can be read, though they may be some.
    unreadable_lines: u64,
    dry_run: bool,
    #[serde(skip)]
    errors: Vec<String>,
}

impl Import {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let spool = self.which.letters(config)?;
        let store = schema::existing(&config.database).await?;
        // In a queue beside the log that has the messages nothing would find them, and one of them may be of a letter.
        if let Some(unserved) = Unserved::look(&*store, &config.database, &config.relay.scope.namespace).await? {
            bail!(
                "{}: letters are not imported into this queue: {unserved}",
                config.database.url()
            );
        }
        // Two at a time would do the same work twice. A dry run writes nothing, not even this.
        let _lock = if self.dry_run { None } else { Some(lock(&spool)?) };
        let contents = spool.read()?;
        let bar = ProgressBar::new(contents.open.len() as u64).with_style(ProgressStyle::with_template(
            "importing {pos} of {len} {wide_bar} {eta}",
        )?);
        let mut outcome = Outcome {
            torn_lines: contents.torn,
            unreadable_lines: contents.unreadable.iter().map(|found| found.lines).sum(),
            dry_run: self.dry_run,
            ..Outcome::default()
        };
        let mut done = Vec::new();
        for open in &contents.open {
            if open.mark.namespace != config.relay.scope.namespace {
                outcome.other_namespace += 1;
            } else if self.dry_run {
                outcome.predict(&*store, open).await?;
            } else if outcome.import(&*store, open).await? {
                done.push(Line::Imported(open.mark.clone()));
            }
            if done.len() >= MARK_EVERY {
                mark(&spool, &mut done)?;
            }
            bar.inc(1);
        }
        mark(&spool, &mut done)?;
        bar.finish_and_clear();
        if !self.dry_run {
            spool.remove_settled()?;
        }
        outcome.print(self.json)?;
        warn_of_others(&contents);
        outcome.account()
    }
}

/// What is imported is marked in the file, so it has to be in a place that can be written.
fn lock(spool: &Spool) -> anyhow::Result<File> {
    spool.lock_import().with_context(|| {
        let file = spool.file().display();
        format!(
            "an import marks in the file what is back; copy {file} to a directory that can be written, and import that"
        )
    })
}

/// A crash before this is harmless: a letter that is back is found there by the next import.
fn mark(spool: &Spool, done: &mut Vec<Line>) -> anyhow::Result<()> {
    if !done.is_empty() {
        spool.append(done).1?;
        done.clear();
    }
    Ok(())
}

impl Outcome {
    /// Returns whether the letter is in the database now.
    async fn import(&mut self, store: &dyn Store, open: &Open) -> anyhow::Result<bool> {
        let Some(letter) = self.read(open)? else {
            return Ok(false);
        };
        match store.restore(&letter).await {
            Ok(Restored::Inserted | Restored::LetterAdded) => {
                self.imported += 1;
                Ok(true)
            }
            Ok(Restored::There(State::Dead | State::Delivered)) => {
                self.there += 1;
                Ok(true)
            }
            Ok(Restored::There(State::Pending | State::Processing)) => {
                self.waiting += 1;
                Ok(false)
            }
            // What every letter would meet.
            Err(error) if error.kind.is_transient() => Err(error.into()),
            Err(error) if matches!(error.kind, StoreErrorKind::Access | StoreErrorKind::SchemaMissing) => {
                Err(error.into())
            }
            Err(error) => {
                self.fail(&open.mark.id, &error.to_string());
                Ok(false)
            }
        }
    }

    /// Reads a letter; nothing if it cannot be one.
    fn read(&mut self, open: &Open) -> anyhow::Result<Option<DeadLetter>> {
        let letter = Letter::dead_letter(open.letter()?);
        if letter.is_none() {
            self.fail(&open.mark.id, "its payload or its hash is none; was the line changed?");
        }
        Ok(letter)
    }

    async fn predict(&mut self, store: &dyn Store, open: &Open) -> anyhow::Result<()> {
        if self.read(open)?.is_none() {
            return Ok(());
        }
        let has_letters = store.requirements().dead_letter_table;
        match store.show(open.message_id()).await?.map(|found| found.state) {
            None => self.imported += 1,
            // Whether its letter is there is found out when it is written.
            Some(State::Dead) if has_letters => self.imported += 1,
            Some(State::Dead | State::Delivered) => self.there += 1,
            Some(State::Pending | State::Processing) => self.waiting += 1,
        }
        Ok(())
    }

    fn fail(&mut self, id: &str, error: &str) {
        self.failed += 1;
        if self.errors.len() < MAX_TOLD {
            self.errors
                .push(format!("{}: {}", harmless_line(id), harmless_line(error)));
        }
    }

    fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if json {
            out.json(self)?;
        } else {
            let verb = if self.dry_run { "would import" } else { "imported" };
            writeln!(out, "{verb} {}, already there {}", self.imported, self.there)?;
            if self.waiting > 0 {
                writeln!(
                    out,
                    "{} are in the outbox and not dead: a relay has them, or will; import again later",
                    self.waiting
                )?;
            }
            if self.other_namespace > 0 {
                writeln!(
                    out,
                    "{} are of other namespaces; set relay.scope.namespace to import them",
                    self.other_namespace
                )?;
            }
        }
        Ok(())
    }

    /// Whoever imports has to hear what is not back.
    fn account(&self) -> anyhow::Result<()> {
        for error in &self.errors {
            eprintln!("{error}");
        }
        if self.failed > 0 {
            bail!("{} letters could not be imported; they stay in the file", self.failed);
        }
        if self.unreadable_lines > 0 {
            bail!(
                "{} lines could not be read, and stay in their files; mend them and import again, or take them out",
                self.unreadable_lines
            );
        }
        Ok(())
    }
}
