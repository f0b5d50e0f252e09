//! Hands a batch to librdkafka.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use posthaste_core::publisher::{Batch, Delivery, PublishError};
use posthaste_kafka::event::{self, Format};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers as _, OwnedHeaders};
use rdkafka::producer::BaseRecord;

use super::batch::{End, Ongoing};
use super::context::{Observer, Ticket};
use super::producer::Producer;

/// A message's place in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) lane: usize,
    pub(super) place: usize,
}

/// The places of a batch's messages, in the order of the batch, and the ids of each lane. A message without a key is a
/// lane of its own.
pub(super) fn places(deliveries: &[Delivery]) -> (Vec<Place>, Vec<Vec<MessageId>>) {
    let mut ids: Vec<Vec<MessageId>> = Vec::new();
    let mut lanes = HashMap::new();
    let mut places = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        let next = ids.len();
        let lane = match delivery.message.lane() {
            Some(lane) => *lanes.entry(lane).or_insert(next),
            None => next,
        };
        if lane == next {
            ids.push(Vec::new());
        }
        let place = ids[lane].len();
        places.push(Place { lane, place });
        ids[lane].push(delivery.message.id);
    }
    (places, ids)
}

/// What handing over needs to know.
pub(super) struct Desk<'a> {
    pub(super) batch: &'a Batch,
    pub(super) ongoing: &'a Arc<Ongoing>,
    pub(super) observer: &'a Observer,
    pub(super) format: Format,
    pub(super) id_header: Option<&'a str>,
    pub(super) patience: Patience,
}

/// How long a full queue is waited for, by the batch as a whole.
pub(super) struct Patience {
    within: Duration,
    is_over: AtomicBool,
}

impl Patience {
    pub(super) fn new(within: Duration) -> Self {
        Self {
            within,
            is_over: AtomicBool::new(false),
        }
    }
}

/// A record's overhead in a request, roughly and rather more.
const OVERHEAD: usize = 100;

impl Desk<'_> {
    /// Hands one message over, if its lane goes on and it may be sent. A full queue is waited for. Whatever keeps the
    /// message from being handed over is its end, and stops its lane.
    pub(super) async fn hand_over(
        &self,
        delivery: &Delivery,
        at: Place,
        topic: &str,
        limit: Option<usize>,
        producer: &Producer,
        warms: Option<u64>,
    ) {
        let id = delivery.message.id;
        let end = |end| self.ongoing.end(at.lane, at.place, end);
        if !self.ongoing.goes_on(at.lane) || !self.batch.may_send(id) {
            return end(End::NotHandedOver);
        }
        let encoded = match event::encode(&delivery.message, delivery.created_at, self.format) {
            Ok(encoded) => encoded,
            Err(error) => return end(End::Failed(PublishError::permanent(error.to_string()))),
        };
        let headers = match self.id_header {
            Some(name) => with_id(&encoded.headers, name, &id.to_string()),
            None => encoded.headers,
        };
        let bytes = size(encoded.key, &headers, &encoded.payload);
        if let Some(limit) = limit.filter(|limit| bytes > *limit) {
            return end(End::Failed(PublishError::permanent(format!(
                "Kafka topic {topic}: the message has {bytes} bytes and the topic takes {limit}; make it smaller, or \
                 raise the topic's max.message.bytes"
            ))));
        }
        let ticket = Ticket {
            batch: Arc::clone(self.ongoing),
            lane: at.lane,
            place: at.place,
            warms,
        };
        let mut record = BaseRecord::with_opaque_to(topic, Box::new(ticket))
            .payload(&*encoded.payload)
            .headers(headers)
            .timestamp(delivery.created_at.timestamp_millis());
        record.key = encoded.key;
        let mut waiting = Waiting::new(&self.patience);
        loop {
            match producer.native().send(record) {
                Ok(()) => return,
                Err((error, returned)) if is_full(&error) => {
                    if !waiting.a_little().await || !self.batch.may_send(id) {
                        return end(End::NotHandedOver);
                    }
                    record = returned;
                }
                Err((error, _)) if is_over(&error) => return end(End::NotHandedOver),
                Err((error, _)) => return end(End::Failed(self.observer.failure(&error, Some(topic)))),
            }
        }
    }
}

/// The wait for room in a full queue.
struct Waiting<'a> {
    patience: &'a Patience,
    until: Instant,
    next: Duration,
}

impl<'a> Waiting<'a> {
    const LONGEST: Duration = Duration::from_millis(50);

    fn new(patience: &'a Patience) -> Self {
        Self {
            patience,
            until: Instant::now() + patience.within,
            next: Duration::from_millis(1),
        }
    }

    /// Whether there is patience left to try again.
    async fn a_little(&mut self) -> bool {
        if self.patience.is_over.load(Ordering::Relaxed) || Instant::now() >= self.until {
            self.patience.is_over.store(true, Ordering::Relaxed);
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(Self::LONGEST);
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

fn size(key: Option<&str>, headers: &OwnedHeaders, payload: &[u8]) -> usize {
    let of_headers = headers
        .iter()
        .map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len) + 4);
    payload.len() + key.map_or(0, str::len) + of_headers.sum::<usize>() + OVERHEAD
}
