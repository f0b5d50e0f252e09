//! Publishing a batch as lines of JSON, all of them or none.

use std::sync::{Arc, Mutex, PoisonError};

use posthaste_core::Message;
use posthaste_core::envelope::Envelope;
use posthaste_core::publisher::{Batch, Outcome, PublishError, Report};

use crate::lanes::LaneSet;

/// Where lines go. An implementation survives its own panic: the next batch must still start on a line of its own.
pub(crate) trait LineSink: Send + 'static {
    /// Appends whole lines; `Ok` once they are as durable as the sink makes them.
    fn append(&mut self, lines: &[u8]) -> Result<(), PublishError>;
}

/// Writes the batch with one append. The sink's lock keeps batches from interleaving, and is waited for on a thread
/// that may block.
pub(crate) async fn publish_lines<S: LineSink>(sink: &Arc<Mutex<S>>, batch: Batch, report: Report) {
    let sink = Arc::clone(sink);
    let writing = tokio::task::spawn_blocking(move || {
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut *sink, &batch, &report);
    });
    if let Err(error) = writing.await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

fn write(sink: &mut impl LineSink, batch: &Batch, report: &Report) {
    let mut stopped = LaneSet::default();
    let mut lines = Vec::new();
    let mut written: Vec<&Message> = Vec::new();
    for delivery in &batch.deliveries {
        let message = &delivery.message;
        if stopped.contains(message) || !batch.may_send(message.id) {
            stopped.insert(message);
            report.outcome(message.id, Outcome::NotAttempted);
            continue;
        }
        match Envelope::new(message, delivery.created_at).to_json() {
            Ok(line) => {
                lines.extend_from_slice(line.as_bytes());
                lines.push(b'\n');
                written.push(message);
            }
            Err(error) => {
                stopped.insert(message);
                let reason = format!("the message cannot be written as JSON: {error}");
                report.failed(message.id, PublishError::permanent(reason));
            }
        }
    }
    if written.is_empty() {
        return;
    }
    match sink.append(&lines) {
        Ok(()) => written.iter().for_each(|message| report.delivered(message.id)),
        Err(error) => report_failure(&written, &error, report),
    }
}

/// The head of each lane takes the blame; the rest of the lane is not made to use up an attempt.
fn report_failure(written: &[&Message], error: &PublishError, report: &Report) {
    let mut failed = LaneSet::default();
    for message in written {
        let outcome = if failed.contains(message) {
            Outcome::NotAttempted
        } else {
            failed.insert(message);
            Outcome::Failed(error.clone())
        };
        report.outcome(message.id, outcome);
    }
}
