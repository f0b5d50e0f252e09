//! The task that writes letters to the file, many with one sync.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::MessageId;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::net::{Caught, FileOrder, Line, Mark, Spool, SpoolError, instrument};

/// Most letters of one write.
const MAX_LETTERS: usize = 1_000;

/// How often the figures are compared with the file, which an import may have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Writes letters until it is stopped.
pub(crate) async fn run(
    engine: Arc<Engine>,
    spool: Spool,
    mut orders: mpsc::UnboundedReceiver<FileOrder>,
    stop: CancellationToken,
) {
    let mut keeper = Keeper {
        spool,
        engine,
        settled: Vec::new(),
        bytes: 0,
        is_failing: false,
    };
    let mut received = Vec::new();
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            count = orders.recv_many(&mut received, MAX_LETTERS) => {
                if count == 0 {
                    return;
                }
                keeper.carry_out(received.drain(..)).await;
            }
            _ = looks.tick() => {
                keeper.carry_out(std::iter::empty()).await;
                keeper.look().await;
            }
        }
    }
}

/// Reads which letters are in the file from an earlier run, before anything is delivered.
pub(crate) async fn load(engine: &Engine, spool: &Spool) {
    let reader = spool.clone();
    match spawn_blocking(move || reader.read()).await {
        Ok(Ok(contents)) => {
            if contents.torn > 0 {
                tracing::warn!(
                    file = %spool.file().display(), lines = contents.torn,
                    "the file of dead letters has lines that were cut short by a crash"
                );
            }
            for found in &contents.unreadable {
                tracing::error!(
                    file = %found.file.display(), lines = found.lines, first = found.first, error = found.error,
                    "the file of dead letters has lines that cannot be read; mend them, or take them out"
                );
            }
            if !contents.open.is_empty() {
                tracing::warn!(
                    file = %spool.file().display(), letters = contents.open.len(),
                    "the file holds dead letters; bring them back with `posthaste spool import`"
                );
            }
            engine.net.hold(&contents);
        }
        Ok(Err(error)) => tracing::error!(%error, "the file of dead letters cannot be read"),
        Err(panic) => tracing::error!(%panic, "the file of dead letters could not be read"),
    }
}

struct Keeper {
    engine: Arc<Engine>,
    spool: Spool,
    /// Marks that are still to be written.
    settled: Vec<MessageId>,
    /// The size of the files as far as it is known.
    bytes: u64,
    /// Whether the latest write failed, which was told then.
    is_failing: bool,
}

impl Keeper {
    async fn carry_out(&mut self, orders: impl Iterator<Item = FileOrder>) {
        let (mut letters, mut flushed): (Vec<Caught>, Vec<_>) = (Vec::new(), Vec::new());
        for order in orders {
            match order {
                FileOrder::Keep(caught) => letters.extend(caught),
                FileOrder::Settled(id) => self.settled.push(id),
                FileOrder::Flush(done) => flushed.push(done),
            }
        }
        let net = &self.engine.net;
        // One that is there from an earlier run, or an earlier try, is not written twice.
        let mut seen = HashSet::new();
        let (there, letters): (Vec<_>, Vec<_>) = letters.into_iter().partition(|caught| {
            let id = net.letter_of(caught);
            !seen.insert(id) || net.has_letter(id)
        });
        self.kept(&there);
        if !letters.is_empty() || !self.settled.is_empty() {
            self.write(letters).await;
        }
        for done in flushed {
            // Who asked may have gone.
            let _ = done.send(());
        }
    }

    async fn write(&mut self, letters: Vec<Caught>) {
        let namespace = self.engine.net.namespace().to_owned();
        let settled = std::mem::take(&mut self.settled);
        let (spool, marks) = (self.spool.clone(), settled.clone());
        let (caught, name) = (Arc::new(letters), namespace.clone());
        let (letters, net) = (Arc::clone(&caught), Arc::clone(&self.engine.net));
        let writing = spawn_blocking(move || {
            let letter = |caught: &Caught| Line::Letter(Box::new(net.letter(caught)));
            let mark = |id: &MessageId| {
                Line::Settled(Mark {
                    namespace: name.clone(),
                    id: id.to_string(),
                })
            };
            // Marks first: they fit also where letters do not.
            let lines: Vec<_> = marks.iter().map(mark).chain(letters.iter().map(letter)).collect();
            spool.append(&lines)
        });
        let (written, outcome) = match writing.await {
            Ok(written) => written,
            Err(panic) => {
                let source = std::io::Error::other(panic);
                let file = self.spool.file().to_owned();
                (0, Err(SpoolError::Io { file, source }))
            }
        };
        let marked = written.min(settled.len());
        self.engine.net.forget(&settled[..marked]);
        self.settled.extend(&settled[marked..]);
        let (kept, failed) = caught.split_at(written - marked);
        if !kept.is_empty() {
            instrument::caught(&namespace, "file", "ok", kept.len() as u64);
            let net = &self.engine.net;
            net.keeps(kept.iter().map(|caught| net.letter_of(caught)));
            self.tell_kept(kept);
            self.kept(kept);
        }
        match outcome {
            Ok(()) => self.is_failing = false,
            Err(error) => self.failed(failed, &error),
        }
        self.look().await;
    }

    /// Their letters are in the file. Where only a table of dead letters refuses them, their rows can be marked as dead.
    fn kept(&self, caught: &[Caught]) {
        let ids: Vec<_> = caught.iter().map(|caught| caught.whole.message.id).collect();
        self.engine.net.placed(&ids);
        self.engine.refusals.spooled(ids.into_iter());
    }

    fn tell_kept(&self, kept: &[Caught]) {
        let (file, letters) = (self.spool.file().display(), kept.len());
        if let Some(Caught { whole, cause, .. }) = kept.first() {
            let message = &whole.message;
            tracing::warn!(
                namespace = self.engine.net.namespace(), %file, letters, id = %message.id, topic = message.topic.as_str(), error = cause,
                "the database does not take dead letters; {letters} of them are in the file, beginning with this one"
            );
        }
    }

    fn failed(&mut self, failed: &[Caught], error: &SpoolError) {
        let net = &self.engine.net;
        let news = net.newly_placeless(failed);
        instrument::caught(net.namespace(), "file", "failed", news.len() as u64);
        let (letters, cause) = (failed.len(), error.to_string());
        // Each try would say the same.
        if self.is_failing {
            tracing::debug!(letters, error = cause, "the file still does not take dead letters");
        } else {
            tracing::error!(
                namespace = net.namespace(),
                letters,
                error = cause,
                "neither the database nor the file takes dead letters; they are kept in memory and tried again at both"
            );
        }
        self.is_failing = true;
        net.tell_of(&news, |_| cause.clone());
    }

    /// Shows what is in the file. An import, or another relay, may have changed it.
    async fn look(&mut self) {
        let (spool, known) = (self.spool.clone(), self.bytes);
        let looking = spawn_blocking(move || {
            let bytes = spool.size()?;
            if bytes == known {
                Ok(None)
            } else {
                spool.read().map(Some)
            }
        });
        // What cannot be read is told when it cannot be written.
        if let Ok(Ok(Some(contents))) = looking.await {
            self.bytes = contents.bytes;
            self.engine.net.hold(&contents);
        }
    }
}
