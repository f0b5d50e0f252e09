//! Publishing a batch as lines of JSON.

use std::borrow::Cow;
use std::sync::Arc;

use posthaste_core::envelope::{Envelope, attribute_name};
use posthaste_core::publisher::{Batch, Delivery, PublishError, Receipt, Report};
use tokio::sync::Mutex;

use crate::lanes::LaneReport;

/// Where lines go. An implementation survives its own panic: the next batch must still start on a line of its own.
pub(crate) trait LineSink: Send + 'static {
    /// Appends whole lines; `Ok` once they are as durable as the sink makes them. Asks for the lines once it has waited for
    /// all that it has to wait for: what may be sent is another question after a wait.
    fn append(&mut self, lines: impl FnOnce() -> Vec<u8>) -> Result<(), BrokenOff>;
}

/// An append that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BrokenOff {
    /// How many bytes were written for good before.
    pub(crate) taken: usize,
    /// Why no more.
    pub(crate) error: PublishError,
}

/// Writes the batch with one append, on a thread that may block. The sink's lock keeps batches from interleaving. It is
/// waited for before there is a thread: while one is blocked, be it for ever, no other one is.
pub(crate) async fn publish_lines<S: LineSink>(sink: &Arc<Mutex<S>>, batch: Batch, report: Report) {
    let mut sink = Arc::clone(sink).lock_owned().await;
    let writing = tokio::task::spawn_blocking(move || write(&mut *sink, &batch, &report));
    if let Err(error) = writing.await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

fn write(sink: &mut impl LineSink, batch: &Batch, report: &Report) {
    let mut report = LaneReport::new(batch, report);
    let mut composed = None;
    let appended = sink.append(|| {
        let (lines, written) = compose(batch, &mut report);
        composed = Some(written);
        lines
    });
    let written = composed.unwrap_or_else(|| compose(batch, &mut report).1);
    let (taken, error) = match appended {
        Ok(()) => (usize::MAX, None),
        Err(BrokenOff { taken, error }) => (taken, Some(error)),
    };
    // What went out before it broke off went out in order, and is not to go out again.
    for (delivery, end) in written {
        let failed = error.as_ref().filter(|_| end > taken);
        report.answer(
            delivery,
            failed.map_or_else(|| Ok(Receipt::default()), |error| Err(error.clone())),
        );
    }
}

/// The lines of those messages that may be sent now, and where each ends. The others are reported.
fn compose<'a>(batch: &'a Batch, report: &mut LaneReport<'a>) -> (Vec<u8>, Vec<(&'a Delivery, usize)>) {
    let mut lines = Vec::new();
    let mut written = Vec::new();
    for delivery in &batch.deliveries {
        if !report.admit(delivery) {
            continue;
        }
        match line(delivery) {
            Ok(line) => {
                lines.extend_from_slice(line.as_bytes());
                lines.push(b'\n');
                written.push((delivery, lines.len()));
            }
            Err(error) => {
                let reason = format!("the message cannot be written as JSON: {error}");
                report.answer(delivery, Err(PublishError::permanent(reason).caused_by(error)));
            }
        }
    }
    (lines, written)
}

/// The message as one line: a `CloudEvents` event that also says its topic, which no attribute of the specification does.
fn line(delivery: &Delivery) -> Result<String, serde_json::Error> {
    const BEGIN: &str = r#"{"specversion":"1.0","#;
    let mut message = Cow::Borrowed(&delivery.message);
    let is_topic = |header: &str| attribute_name(header).as_deref() == Some("topic");
    if message.headers.keys().any(|header| is_topic(header)) {
        // A member must not be there twice, and a reader asks where the message was to go.
        message.to_mut().headers.retain(|header, _| !is_topic(header));
    }
    let json = Envelope::new(&message, delivery.created_at).to_json()?;
    if message.topic.is_empty() {
        return Ok(json);
    }
    let topic = serde_json::to_string(&message.topic)?;
    let begin = if json.starts_with(BEGIN) { BEGIN.len() } else { 1 };
    Ok(format!("{}\"topic\":{topic},{}", &json[..begin], &json[begin..]))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use chrono::DateTime;
    use posthaste_core::Message;
    use posthaste_core::publisher::{LeaseCheck, Place};

    use super::*;

    /// A pipe that nobody reads.
    struct Full(mpsc::Receiver<()>, Arc<AtomicUsize>);

    impl LineSink for Full {
        fn append(&mut self, _: impl FnOnce() -> Vec<u8>) -> Result<(), BrokenOff> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let _ = self.0.recv();
            Ok(())
        }
    }

    struct Always;

    impl LeaseCheck for Always {
        fn may_send(&self, _: Place) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_sink_that_takes_nothing_blocks_one_thread_however_often_it_is_tried() {
        let (release, blocked) = mpsc::channel();
        let blocked_threads = Arc::new(AtomicUsize::new(0));
        let sink = Arc::new(Mutex::new(Full(blocked, Arc::clone(&blocked_threads))));
        for _ in 0..20 {
            let delivery = Delivery::new(Message::new("t", "x"), DateTime::UNIX_EPOCH);
            let batch = Batch::new(vec![delivery], Arc::new(Always));
            let publishing = publish_lines(&sink, batch, Report::new(|_, _| {}));
            let published = tokio::time::timeout(Duration::from_millis(20), publishing).await;
            assert!(published.is_err());
        }
        assert_eq!(blocked_threads.load(Ordering::Relaxed), 1);
        drop(release);
        drop(sink.lock().await);
    }
}
