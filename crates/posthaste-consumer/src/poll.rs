//! The polling thread: reads, hands over, commits, and takes part in rebalances.
//!
//! A thread of its own, because rebalances are answered from within a poll and may wait there for handlers to finish. It
//! never waits for a handler otherwise, so a slow one does not cost the group's membership.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_kafka::error::explain_error;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// Longest wait without a look at the consumer. Everything of interest gives a signal; this is for what does not.
const LOOK: Duration = Duration::from_millis(100);

/// Reads until it is asked to stop. Returns why it could not go on, if that is what happened.
pub(crate) fn run(
    consumer: Arc<BaseConsumer<Context>>,
    topics: &[String],
    stop: &CancellationToken,
    grace: Duration,
) -> Result<(), String> {
    let poller = Poller(consumer);
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let subscribed = poller.0.subscribe(&topics);
    let result = subscribed
        .map_err(|error| explain_error(&error, None).text)
        .and_then(|()| poller.read(stop));
    poller.finish(grace);
    result
}

struct Poller(Arc<BaseConsumer<Context>>);

impl Poller {
    fn read(&self, stop: &CancellationToken) -> Result<(), String> {
        let context = self.0.context();
        while !stop.is_cancelled() {
            self.serve()?;
            if let Some(unsettled) = &context.unsettled {
                unsettled.look_again(&self.0);
            }
            let some = context.assignments.fill(&context.kafka)?;
            context.assignments.commit_batches();
            if !some {
                context.assignments.signal.wait(LOOK);
            }
        }
        Ok(())
    }

    /// Answers rebalances, and takes note of errors.
    fn serve(&self) -> Result<(), String> {
        let context = self.0.context();
        while let Some(result) = self.0.poll(Duration::ZERO) {
            match result {
                Ok(record) => context.assignments.keep(&record),
                Err(KafkaError::MessageConsumptionFatal(code)) => {
                    return Err(format!("the client cannot go on: {code}; start the consumer again"));
                }
                // The context has been told.
                Err(_) => {}
            }
        }
        context.fatal().map_or(Ok(()), Err)
    }

    /// Lets the workers finish, commits, and leaves the group.
    fn finish(&self, grace: Duration) {
        let assignments = &self.0.context().assignments;
        assignments.begin_closing();
        let deadline = Instant::now() + grace;
        while !assignments.all_finished() && Instant::now() < deadline {
            // Somebody else may join or leave meanwhile.
            if let Err(error) = self.serve() {
                tracing::debug!(error, "while stopping");
            }
            assignments.signal.wait(LOOK.min(grace));
        }
        assignments.close(&self.0);
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.0.context().assignments.clear();
    }
}
