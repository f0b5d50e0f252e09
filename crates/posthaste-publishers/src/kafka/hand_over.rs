//! Hands messages to librdkafka.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posthaste_core::publisher::{Batch, Delivery, PublishError};
use posthaste_kafka::event::Encoder;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::BaseRecord;

use super::batch::{End, Ongoing, Via};
use super::client::KafkaClient;
use super::in_flight::tag;
use super::options::RecordTimestamp;
use super::producer::Producer;
use super::size;

/// A message that is to be handed over.
pub(super) struct Handing<'m, 'a> {
    pub(super) delivery: &'m Delivery,
    pub(super) position: u32,
    pub(super) topic: &'a str,
    /// The largest record that the topic takes, as far as known.
    pub(super) limit: Option<usize>,
    pub(super) producer: &'a Producer,
    pub(super) via: Option<Via>,
    /// The lane's name, if it is to be remembered once it is acknowledged.
    pub(super) known_by: Option<u64>,
}

/// Why a message is not handed over.
pub(super) enum Obstacle {
    /// It never will be, and its lane is stopped.
    Ended,
    /// The producer's queue is full.
    Full,
    /// It has more bytes than the topic takes, as far as known.
    AboveLimit(usize),
}

/// Hands the messages of one batch over.
pub(super) struct RecordSender<'a> {
    publisher: &'a KafkaClient,
    batch: &'a Batch,
    ongoing: Arc<Ongoing>,
    slot: usize,
    work: Mutex<Work<'a>>,
    queue_timeout: QueueTimeout,
}

/// What is shared by the messages of a batch.
struct Work<'a> {
    encoder: Encoder<'a>,
    /// When messages are handed over, as of the last look at the clock: to look for each would take longer than to note it.
    now: Instant,
}

/// How long a full queue is waited for, by the batch as a whole.
struct QueueTimeout {
    within: Duration,
    is_over: AtomicBool,
}

impl<'a> RecordSender<'a> {
    pub(super) fn new(publisher: &'a KafkaClient, batch: &'a Batch, ongoing: &Arc<Ongoing>, slot: usize) -> Self {
        let options = &publisher.options;
        Self {
            publisher,
            batch,
            ongoing: Arc::clone(ongoing),
            slot,
            work: Mutex::new(Work {
                encoder: Encoder::new(options.format, options.id_header.as_deref()),
                now: Instant::now(),
            }),
            queue_timeout: QueueTimeout {
                within: options.effective_answer_within(),
                is_over: AtomicBool::new(false),
            },
        }
    }

    /// Looks at the clock, for the messages that are handed over next.
    pub(super) fn look_at_clock(&self) {
        self.work().now = Instant::now();
    }

    fn work(&self) -> MutexGuard<'_, Work<'a>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands one message over, if its lane goes on and it may be sent. What keeps it from being handed over for good is
    /// its end, and stops its lane.
    pub(super) fn hand_over(&self, handing: &Handing<'a, '_>) -> Result<(), Obstacle> {
        self.try_hand_over(handing).unwrap_or_else(|end| {
            self.ongoing.end(handing.position, end);
            Err(Obstacle::Ended)
        })
    }

    fn try_hand_over(&self, handing: &Handing<'a, '_>) -> Result<Result<(), Obstacle>, End> {
        let Handing {
            delivery,
            position,
            topic,
            producer,
            ..
        } = *handing;
        if producer.is_retired() || !self.batch.may_send(delivery.place) {
            return Err(End::NotHandedOver);
        }
        let (encoded, now) = {
            let mut work = self.work();
            let encoded = work.encoder.encode(&delivery.message, delivery.created_at);
            (encoded, work.now)
        };
        let encoded = encoded.map_err(|error| End::failed(PublishError::permanent(error.to_string())))?;
        let bytes = size::of_record(&encoded);
        if handing.limit.is_some_and(|limit| bytes > limit) {
            return Ok(Err(Obstacle::AboveLimit(bytes)));
        }
        let Some(tag) = tag(self.slot, position, handing.known_by.is_some()) else {
            return Err(End::NotHandedOver);
        };
        let mut record = BaseRecord::with_opaque_to(topic, tag)
            .payload(&*encoded.payload)
            .headers(encoded.headers);
        if self.publisher.options.timestamp == RecordTimestamp::Enqueued {
            record = record.timestamp(delivery.created_at.timestamp_millis());
        }
        record.key = encoded.key;
        let (ongoing, role) = (&self.ongoing, producer.role());
        if !ongoing.hand_over(position, role, handing.via, bytes, handing.known_by, now) {
            return Err(End::NotHandedOver);
        }
        let Err((error, _)) = producer.native().send(record) else {
            producer.take_back_late();
            return Ok(Ok(()));
        };
        ongoing.not_taken(position);
        if is_full(&error) {
            Ok(Err(Obstacle::Full))
        } else if is_over(&error) {
            Err(End::NotHandedOver)
        } else {
            Err(End::failed(self.publisher.observer.failure(&error, Some(topic))))
        }
    }

    /// What becomes of a message above the limit of its topic; nothing if the limit was raised.
    pub(super) async fn judge_size(&self, topic: &str, bytes: usize) -> Option<End> {
        let limit = self.publisher.limit_below(topic, bytes).await?;
        Some(End::failed(PublishError::permanent(format!(
            "Kafka topic {topic}: the message has {bytes} bytes and the topic takes {limit}; make it smaller, or \
             raise the topic's max.message.bytes"
        ))))
    }

    /// A wait for room in a full queue.
    pub(super) fn wait_for_room(&self) -> Waiting<'_> {
        Waiting::new(&self.queue_timeout)
    }
}

/// The wait for room in a full queue.
pub(super) struct Waiting<'a> {
    queue_timeout: &'a QueueTimeout,
    until: Instant,
    next: Duration,
}

impl<'a> Waiting<'a> {
    const MAX_PAUSE: Duration = Duration::from_millis(50);

    fn new(queue_timeout: &'a QueueTimeout) -> Self {
        Self {
            queue_timeout,
            until: Instant::now() + queue_timeout.within,
            next: Duration::from_millis(1),
        }
    }

    /// Whether there is time left to try again.
    pub(super) async fn a_little(&mut self) -> bool {
        if self.queue_timeout.is_over.load(Ordering::Relaxed) || Instant::now() >= self.until {
            self.queue_timeout.is_over.store(true, Ordering::Relaxed);
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(Self::MAX_PAUSE);
        true
    }
}

fn is_full(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull)
}

/// The producer came to an end since it was chosen: the message goes to the next one, with the next batch.
fn is_over(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::Fatal | RDKafkaErrorCode::GaplessGuarantee)
    )
}
