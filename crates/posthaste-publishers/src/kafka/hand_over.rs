//! Hands messages to librdkafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::publisher::{Batch, Delivery, PublishError};
use posthaste_kafka::event;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers as _, OwnedHeaders};
use rdkafka::producer::BaseRecord;

use super::batch::{End, Ongoing};
use super::client::KafkaClient;
use super::context::DeliveryTag;
use super::options::RecordTimestamp;
use super::producer::Producer;
use super::size;

/// How many messages are handed over before other tasks get their turn.
const TURN: usize = 256;

/// A message's place in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanePlace {
    pub(super) lane: usize,
    pub(super) place: usize,
}

/// Hands the messages of one batch over.
pub(super) struct RecordSender<'a> {
    publisher: &'a KafkaClient,
    batch: &'a Batch,
    ongoing: &'a Arc<Ongoing>,
    queue_timeout: QueueTimeout,
    turns: AtomicUsize,
}

/// How long a full queue is waited for, by the batch as a whole.
struct QueueTimeout {
    within: Duration,
    is_over: AtomicBool,
}

impl<'a> RecordSender<'a> {
    pub(super) fn new(publisher: &'a KafkaClient, batch: &'a Batch, ongoing: &'a Arc<Ongoing>) -> Self {
        Self {
            publisher,
            batch,
            ongoing,
            queue_timeout: QueueTimeout {
                within: publisher.options.effective_answer_within(),
                is_over: AtomicBool::new(false),
            },
            turns: AtomicUsize::new(0),
        }
    }

    /// Hands one message over, if its lane goes on and it may be sent. A full queue is waited for. Whatever keeps the
    /// message from being handed over is its end, and stops its lane. `lane` is remembered once it is acknowledged.
    pub(super) async fn hand_over(
        &self,
        delivery: &Delivery,
        at: LanePlace,
        topic: &str,
        producer: &Producer,
        lane: Option<u64>,
    ) {
        if self.turns.fetch_add(1, Ordering::Relaxed) % TURN == TURN - 1 {
            tokio::task::yield_now().await;
        }
        if let Err(end) = self.try_hand_over(delivery, at, topic, producer, lane).await {
            self.ongoing.end(at.lane, at.place, end);
        }
    }

    async fn try_hand_over(
        &self,
        delivery: &Delivery,
        at: LanePlace,
        topic: &str,
        producer: &Producer,
        lane: Option<u64>,
    ) -> Result<(), End> {
        let (id, options) = (delivery.message.id, &self.publisher.options);
        let may_send =
            || self.ongoing.goes_on(at.lane) && !producer.is_retired() && self.batch.may_send(delivery.place);
        if !may_send() {
            return Err(End::NotHandedOver);
        }
        let encoded = event::encode(&delivery.message, delivery.created_at, options.format)
            .map_err(|error| End::Failed(PublishError::permanent(error.to_string())))?;
        let headers = match &options.id_header {
            Some(name) => with_id(&encoded.headers, name, &id.to_string()),
            None => encoded.headers,
        };
        let bytes = size::of_record(encoded.key, &headers, &encoded.payload);
        if let Some(limit) = self.publisher.limit_below(topic, bytes).await {
            return Err(End::Failed(PublishError::permanent(format!(
                "Kafka topic {topic}: the message has {bytes} bytes and the topic takes {limit}; make it smaller, or \
                 raise the topic's max.message.bytes"
            ))));
        }
        // The question for the limit may have taken a while.
        if !may_send() {
            return Err(End::NotHandedOver);
        }
        let tag = DeliveryTag {
            batch: Arc::clone(self.ongoing),
            lane: at.lane,
            place: at.place,
            known_by: lane,
            bytes,
        };
        let mut record = BaseRecord::with_opaque_to(topic, Box::new(tag))
            .payload(&*encoded.payload)
            .headers(headers);
        if options.timestamp == RecordTimestamp::Enqueued {
            record = record.timestamp(delivery.created_at.timestamp_millis());
        }
        record.key = encoded.key;
        let mut waiting = Waiting::new(&self.queue_timeout);
        loop {
            match producer.native().send(record) {
                Ok(()) => {
                    self.ongoing.handed_over(at.lane, at.place, producer.role());
                    producer.take_back_late();
                    return Ok(());
                }
                Err((error, returned)) if is_full(&error) => {
                    if !waiting.a_little().await || !may_send() {
                        return Err(End::NotHandedOver);
                    }
                    record = returned;
                }
                Err((error, _)) if is_over(&error) => return Err(End::NotHandedOver),
                Err((error, _)) => return Err(End::Failed(self.publisher.observer.failure(&error, Some(topic)))),
            }
        }
    }
}

/// The wait for room in a full queue.
struct Waiting<'a> {
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
    async fn a_little(&mut self) -> bool {
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

fn with_id(headers: &OwnedHeaders, name: &str, id: &str) -> OwnedHeaders {
    // The producer's own header of that name would contradict it.
    let others = headers.iter().filter(|header| header.key != name);
    let others = others.fold(OwnedHeaders::new(), OwnedHeaders::insert);
    others.insert(Header {
        key: name,
        value: Some(id),
    })
}
