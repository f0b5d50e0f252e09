//! Lines of JSON, a chunk of them per transaction.

use std::io::BufRead;

use anyhow::{Context, anyhow};
use posthaste_core::store::Store;
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions};
use posthaste_sql::TableMap;

use super::layout::UnservedQueue;
use super::{line, refusal};
use crate::failure::is_broken_pipe;
use crate::terminal;

/// Where lines are written.
pub(super) struct Target<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) options: &'a OutboxOptions,
    pub(super) unserved: Option<UnservedQueue>,
}

pub(super) async fn enqueue(target: &Target<'_>, mut lines: Lines<'_, impl BufRead>, json: bool) -> anyhow::Result<()> {
    let mut written = 0;
    let mut has_reader = true;
    loop {
        let step = write_chunk(target, &mut lines).await;
        let outcomes = step.with_context(|| what_was_written(written))?;
        if outcomes.is_empty() {
            return Ok(());
        }
        written = lines.read;
        if has_reader {
            // Whoever reads the ids may have seen enough of them; the rest is written all the same.
            has_reader = print(&outcomes, json).with_context(|| what_was_written(written))?;
        }
    }
}

fn what_was_written(lines: usize) -> String {
    match lines {
        0 => "nothing was written".to_owned(),
        1 => "line 1 was written, nothing after it".to_owned(),
        _ => format!("lines 1 to {lines} were written, nothing after them"),
    }
}

/// What was written; nothing at the end of the input.
async fn write_chunk(target: &Target<'_>, lines: &mut Lines<'_, impl BufRead>) -> anyhow::Result<Vec<Enqueued>> {
    let (numbers, messages): (Vec<usize>, Vec<Message>) = lines.next_chunk()?.into_iter().unzip();
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(unserved) = &target.unserved {
        messages
            .iter()
            .try_for_each(|message| unserved.refuse(target.options, message))?;
    }
    target
        .store
        .enqueue_and_commit(target.options, messages)
        .await
        .map_err(|error| match error {
            EnqueueError::Invalid { position, reason } => {
                anyhow!("line {}: {}", numbers[position], refusal::of_fields(&reason))
            }
            error => error.into(),
        })
}

/// Whether somebody reads what is printed.
fn print(outcomes: &[Enqueued], json: bool) -> anyhow::Result<bool> {
    let mut out = terminal::stdout();
    let printed = super::print(&mut out, outcomes, json).and_then(|()| Ok(out.flush()?));
    match printed {
        Err(error) if is_broken_pipe(&error) => Ok(false),
        printed => printed.context("the ids cannot be printed").map(|()| true),
    }
}

/// The messages of an input.
pub(super) struct Lines<'a, R> {
    input: R,
    read: usize,
    chunk: usize,
    map: Option<&'a TableMap>,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(input: R, chunk: u32, map: Option<&'a TableMap>) -> Self {
        Self {
            input,
            read: 0,
            chunk: usize::try_from(chunk).unwrap_or(usize::MAX),
            map,
        }
    }

    /// The next messages with the numbers of their lines; none at the end of the input. Empty lines are passed over.
    fn next_chunk(&mut self) -> anyhow::Result<Vec<(usize, Message)>> {
        let mut messages = Vec::new();
        let mut text = String::new();
        while messages.len() < self.chunk {
            text.clear();
            let number = self.read + 1;
            let place = || format!("line {number}");
            if self.input.read_line(&mut text).with_context(place)? == 0 {
                break;
            }
            self.read = number;
            if text.trim().is_empty() {
                continue;
            }
            messages.push((number, line::parse(text.trim(), self.map).with_context(place)?));
        }
        Ok(messages)
    }
}
