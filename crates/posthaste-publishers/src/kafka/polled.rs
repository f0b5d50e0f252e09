//! A producer and the thread that takes its events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::BaseProducer;

use super::context::Callbacks;

/// How long the thread takes events before it looks whether it is to end.
///
/// rdkafka's own threaded producer looks five times as often, and asks without a pause in the last millisecond of each time:
/// a hundredth of a core for each producer, also while nothing is sent.
const POLL_TIMEOUT: Duration = Duration::from_millis(500);

/// A producer of librdkafka whose events are taken as they come.
pub(super) struct PolledProducer {
    producer: Arc<BaseProducer<Callbacks>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PolledProducer {
    pub(super) fn new(config: &ClientConfig, callbacks: Callbacks) -> Result<Self, KafkaError> {
        let producer: Arc<BaseProducer<Callbacks>> = Arc::new(config.create_with_context(callbacks)?);
        let stopped = Arc::new(AtomicBool::new(false));
        let polling = {
            let (producer, stopped) = (Arc::clone(&producer), Arc::clone(&stopped));
            move || {
                while !stopped.load(Ordering::Acquire) {
                    producer.poll(POLL_TIMEOUT);
                }
            }
        };
        let thread = std::thread::Builder::new().name("kafka-poll".to_owned()).spawn(polling);
        let thread = thread.map_err(|_| KafkaError::Global(RDKafkaErrorCode::CriticalSystemResource))?;
        Ok(Self {
            producer,
            stopped,
            thread: Some(thread),
        })
    }
}

impl std::ops::Deref for PolledProducer {
    type Target = BaseProducer<Callbacks>;

    fn deref(&self) -> &Self::Target {
        &self.producer
    }
}

impl Drop for PolledProducer {
    /// Waits for the thread, which may take as long as one of its looks: not to be dropped where nothing may block.
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
