//! Lines of JSON, a chunk of them per transaction.

use std::io::BufRead;

use anyhow::{Context, anyhow};
use posthaste_core::store::Store;
use posthaste_core::{EnqueueError, Message, OutboxOptions};

use super::{line, print, refusal};
use crate::terminal;

pub(super) async fn enqueue(
    store: &dyn Store,
    options: &OutboxOptions,
    input: impl BufRead,
    chunk: u32,
    json: bool,
) -> anyhow::Result<()> {
    let mut chunks = Chunks {
        input,
        lines_read: 0,
        size: usize::try_from(chunk).unwrap_or(usize::MAX),
    };
    let mut written = 0;
    loop {
        let step = write_chunk(store, options, &mut chunks, json).await;
        match step.with_context(|| what_was_written(written)) {
            Ok(true) => written = chunks.lines_read,
            Ok(false) => return Ok(()),
            Err(error) => return Err(error),
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

/// Whether there was anything left to write.
async fn write_chunk(
    store: &dyn Store,
    options: &OutboxOptions,
    chunks: &mut Chunks<impl BufRead>,
    json: bool,
) -> anyhow::Result<bool> {
    let (numbers, messages): (Vec<usize>, Vec<Message>) = chunks.next()?.into_iter().unzip();
    if messages.is_empty() {
        return Ok(false);
    }
    let outcomes = store
        .enqueue_and_commit(options, messages)
        .await
        .map_err(|error| match error {
            EnqueueError::Invalid { position, reason } => {
                anyhow!("line {}: {}", numbers[position], refusal::of_fields(&reason))
            }
            error => error.into(),
        })?;
    let mut out = terminal::stdout();
    print(&mut out, &outcomes, json)?;
    out.flush()?;
    Ok(true)
}

struct Chunks<R> {
    input: R,
    lines_read: usize,
    size: usize,
}

impl<R: BufRead> Chunks<R> {
    /// The next messages with the numbers of their lines; none at the end of the input. Empty lines are passed over.
    fn next(&mut self) -> anyhow::Result<Vec<(usize, Message)>> {
        let mut messages = Vec::new();
        let mut text = String::new();
        while messages.len() < self.size {
            text.clear();
            let number = self.lines_read + 1;
            let read = self
                .input
                .read_line(&mut text)
                .with_context(|| format!("line {number}"))?;
            if read == 0 {
                break;
            }
            self.lines_read = number;
            if !text.trim().is_empty() {
                messages.push((
                    number,
                    line::parse(text.trim()).with_context(|| format!("line {number}"))?,
                ));
            }
        }
        Ok(messages)
    }
}
