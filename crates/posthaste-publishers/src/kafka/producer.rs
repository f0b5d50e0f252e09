//! Producers come and go: one that came to an end, or that gets no answers, is replaced by a new one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::Client;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer as _, PurgeConfig};

use super::acks::AckTracker;
use super::context::{Callbacks, Observer};
use super::in_flight::InFlight;
use super::options::KafkaOptions;
use super::polled::PolledProducer;
use super::requests::Requests;
use super::role::Role;
use super::topics::Topics;

/// One of librdkafka's producers.
pub(super) struct Producer {
    generation: u64,
    role: Role,
    /// Whether it has been replaced.
    retired: AtomicBool,
    /// Always there; taken out only to be dropped.
    native: Option<PolledProducer>,
    /// Most bytes of a request with several messages.
    batch_bytes: usize,
    /// How many requests a broker may have under way; none if the settings say it.
    requests: Option<usize>,
    living: Option<Living>,
}

impl Producer {
    pub(super) fn native(&self) -> &BaseProducer<Callbacks> {
        self.native.as_ref().expect("it is taken out only when this is dropped")
    }

    pub(super) fn client(&self) -> &Client<Callbacks> {
        self.native().client()
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Whether it has been replaced: it is to be given nothing more.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Takes back what it was given after it had been replaced: nothing else would.
    pub(super) fn take_back_late(&self) {
        if self.is_retired() {
            self.native().purge(PurgeConfig::default().queue().inflight());
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        drop_elsewhere((self.native.take(), self.living.take()));
    }
}

/// Clients whose threads may be running.
static LIVING: AtomicUsize = AtomicUsize::new(0);

/// One of them, and of those of its owner.
pub(super) struct Living {
    _owned: Arc<()>,
}

impl Living {
    pub(super) fn new(owner: &Arc<()>) -> Self {
        LIVING.fetch_add(1, Ordering::AcqRel);
        Self {
            _owned: Arc::clone(owner),
        }
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Drops a client. The end of librdkafka's threads is waited for elsewhere: the thread that drops it may be one that
/// must not block. A [`Living`] comes last of what is dropped.
pub(super) fn drop_elsewhere<T: Send + 'static>(client: T) {
    let end = move || drop(client);
    let _ = std::thread::Builder::new().name("kafka-drop".to_owned()).spawn(end);
}

/// Waits until the threads of all dropped publishers have ended, and returns whether they have.
///
/// For the end of a process: OpenSSL frees what it holds when the process exits, and a thread that is in the middle of a
/// handshake in that moment takes the process down with a signal in place of its exit code.
pub fn wait_for_threads(within: Duration) -> bool {
    let since = Instant::now();
    while LIVING.load(Ordering::Acquire) > 0 && since.elapsed() < within {
        std::thread::sleep(POLL_INTERVAL);
    }
    LIVING.load(Ordering::Acquire) == 0
}

/// The producers that serve one batch.
pub(super) struct Producers<'a> {
    slots: [&'a Slot; 2],
    lone: Arc<Producer>,
    lanes: Option<Arc<Producer>>,
}

impl<'a> Producers<'a> {
    pub(super) fn new(lone: &'a Slot, lanes: Option<&'a Slot>) -> Result<Self, KafkaError> {
        Ok(Self {
            slots: [lone, lanes.unwrap_or(lone)],
            lone: lone.producer()?,
            lanes: lanes.map(Slot::producer).transpose()?,
        })
    }

    /// The generation of the one for lanes, if there is one.
    pub(super) fn for_lanes(&self) -> Option<u64> {
        self.lanes.as_ref().map(|producer| producer.generation)
    }

    pub(super) fn of(&self, role: Role) -> &Producer {
        match (role, &self.lanes) {
            (Role::Lanes, Some(lanes)) => lanes,
            _ => &self.lone,
        }
    }

    pub(super) fn replace(&self, role: Role) {
        let [lone, lanes] = self.slots;
        let slot = if role == Role::Lanes { lanes } else { lone };
        slot.replace(self.of(role).generation);
    }
}

/// What all producers tell, and learn.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) observer: Arc<Observer>,
    pub(super) acks: Arc<AckTracker>,
    pub(super) topics: Arc<Topics>,
    pub(super) in_flight: Arc<InFlight>,
}

/// The present producer of a role.
pub(super) struct Slot {
    role: Role,
    config: ClientConfig,
    requests: Requests,
    shared: Shared,
    generations: AtomicU64,
    present: Mutex<Option<Arc<Producer>>>,
    /// Shared by all producers whose threads may be running.
    clients: Arc<()>,
    itself: Weak<Slot>,
}

/// How long a producer that is replaced may still wait for answers to what it has sent.
const RETIRE_GRACE: Duration = Duration::from_secs(1);
/// How long its last reports may take.
const LAST_REPORTS_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// librdkafka's default for `batch.size`.
const BATCH_BYTES: usize = 1_000_000;

impl Slot {
    pub(super) fn new(
        role: Role,
        config: &ClientConfig,
        requests: Requests,
        shared: &Shared,
        answer_within: Duration,
    ) -> Arc<Self> {
        let mut config = config.clone();
        match role {
            Role::Lanes => {
                config.set("retries", i32::MAX.to_string());
                config.set("delivery.timeout.ms", "0");
                config.set("enable.gapless.guarantee", "true");
            }
            Role::Lone => {
                let timeout = KafkaOptions::delivery_timeout(&config).min(answer_within);
                config.set("delivery.timeout.ms", timeout.as_millis().to_string());
            }
        }
        Arc::new_cyclic(|itself| Self {
            role,
            config,
            requests,
            shared: shared.clone(),
            generations: AtomicU64::new(0),
            present: Mutex::new(None),
            clients: Arc::default(),
            itself: Weak::clone(itself),
        })
    }

    #[cfg(test)]
    pub(super) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The present producer, or a new one.
    pub(super) fn producer(&self) -> Result<Arc<Producer>, KafkaError> {
        let mut present = self.present();
        if let Some(producer) = &*present {
            // A request that is too large for a topic fails with all that is in it.
            let fits = producer.batch_bytes <= self.shared.topics.smallest_limit();
            // Topics that were not known when it was made have more partitions. What it holds, or will be given by
            // batches that wait for their turn, is worth more than that.
            let is_needed = || Arc::strong_count(producer) > 1 || producer.native().in_flight_count() > 0;
            let allows_enough = producer.requests >= self.requests() || is_needed();
            if fits && allows_enough && producer.client().fatal_error().is_none() {
                return Ok(Arc::clone(producer));
            }
            present.take().into_iter().for_each(retire);
        }
        let producer = Arc::new(self.create()?);
        *present = Some(Arc::clone(&producer));
        Ok(producer)
    }

    fn create(&self) -> Result<Producer, KafkaError> {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let itself = Weak::clone(&self.itself);
        let batch_bytes = self.batch_bytes();
        let Shared {
            observer,
            acks,
            topics,
            in_flight,
        } = self.shared.clone();
        let callbacks = Callbacks {
            observer,
            acks,
            topics,
            in_flight,
            generation,
            role: self.role,
            batch_bytes,
            ended: AtomicBool::new(false),
            on_end: Box::new(move |reason| {
                if let Some(slot) = itself.upgrade() {
                    slot.end(generation, reason);
                }
            }),
        };
        let mut config = self.config.clone();
        config.set("batch.size", batch_bytes.to_string());
        let requests = self.requests();
        if let Some(requests) = requests {
            Requests::set(&mut config, requests);
        }
        let native = Some(PolledProducer::new(&config, callbacks)?);
        Ok(Producer {
            generation,
            role: self.role,
            retired: AtomicBool::new(false),
            native,
            batch_bytes,
            requests,
            living: Some(Living::new(&self.clients)),
        })
    }

    /// Most bytes of a request with several messages. librdkafka gives a message that is larger a request of its own.
    fn batch_bytes(&self) -> usize {
        let configured = |name: &str| self.config.get(name).and_then(|text| text.parse().ok());
        if configured("batch.num.messages") == Some(1) {
            return 1;
        }
        let limit = self.shared.topics.smallest_limit();
        configured("batch.size").unwrap_or(BATCH_BYTES).min(limit)
    }

    /// How many requests a broker may have under way, by what is known of topics now.
    fn requests(&self) -> Option<usize> {
        self.requests.beside(self.shared.topics.led_by_one())
    }

    fn end(&self, generation: u64, reason: &str) {
        if self.replace(generation) {
            tracing::warn!(
                role = self.role.as_str(),
                "the Kafka producer came to its end, and a new one takes over: {reason}"
            );
        }
    }

    /// Takes a producer out of service, if it still is the present one. What it holds is reported as taken back.
    fn replace(&self, generation: u64) -> bool {
        let mut present = self.present();
        let ended = present.take_if(|producer| producer.generation == generation);
        let was_present = ended.is_some();
        ended.into_iter().for_each(retire);
        was_present
    }

    /// Takes the present producer out of service.
    pub(super) fn close(&self) {
        self.present().take().into_iter().for_each(retire);
    }

    /// Waits until the threads of its producers have ended, and returns whether they have. Blocks.
    pub(super) fn wait_until_closed(&self, within: Duration) -> bool {
        let since = Instant::now();
        while Arc::strong_count(&self.clients) > 1 && since.elapsed() < within {
            std::thread::sleep(POLL_INTERVAL);
        }
        Arc::strong_count(&self.clients) == 1
    }

    fn present(&self) -> MutexGuard<'_, Option<Arc<Producer>>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.close();
    }
}

/// Gives answers that are on their way a moment to arrive, takes back what is left, and waits for the reports of that.
/// On a thread of its own, because it blocks, and may be asked for by librdkafka's own.
fn retire(producer: Arc<Producer>) {
    producer.retired.store(true, Ordering::Release);
    let retiring = move || {
        let native = producer.native();
        let settled = |within: Duration| {
            let since = Instant::now();
            while native.in_flight_count() > 0 && since.elapsed() < within {
                std::thread::sleep(POLL_INTERVAL);
            }
            native.in_flight_count() == 0
        };
        if !settled(RETIRE_GRACE) {
            native.purge(PurgeConfig::default().queue().inflight());
            settled(LAST_REPORTS_TIMEOUT);
        }
    };
    // Without a thread the producer is dropped here, which takes everything back as well.
    let _ = std::thread::Builder::new()
        .name("kafka-retire".to_owned())
        .spawn(retiring);
}

#[cfg(test)]
mod tests {
    use super::super::options::UnknownTopic;
    use super::super::requests;
    use super::super::topics::Facts;
    use super::*;

    fn shared() -> Shared {
        let (topics, acks, in_flight) = (Arc::default(), Arc::default(), Arc::default());
        let observer = Observer::new(UnknownTopic::Retry, Duration::from_secs(20), &topics, &acks);
        Shared {
            observer: Arc::new(observer),
            acks,
            topics,
            in_flight,
        }
    }

    fn idempotent() -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("enable.idempotence", "true").set(requests::PROPERTY, "5");
        config
    }

    #[test]
    fn a_broker_gets_fewer_requests_than_it_leads_partitions_and_more_once_there_are_more() {
        let (shared, config) = (shared(), idempotent());
        let requests = Requests::of(&config, false);
        let slot = Slot::new(Role::Lanes, &config, requests, &shared, Duration::from_secs(20));
        let learn = |topic: &str, led_by_one| {
            let facts = Facts {
                partitions: 3 * led_by_one,
                led_by_one,
                max_message_bytes: None,
            };
            shared.topics.learnt(topic, facts);
        };
        learn("a", 4);
        let first = slot.producer().unwrap();
        assert_eq!(first.requests, Some(3));
        learn("b", 1);
        // What librdkafka itself has to say is counted until its thread has taken it.
        let since = Instant::now();
        while first.native().in_flight_count() > 0 && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(POLL_INTERVAL);
        }
        let held = slot.producer().unwrap();
        assert!(Arc::ptr_eq(&first, &held), "a batch may wait for its turn with it");
        let generation = first.generation;
        drop((first, held));
        let second = slot.producer().unwrap();
        assert_eq!((second.requests, second.generation), (Some(4), generation + 1));
        shared.topics.forget("b");
        assert!(
            Arc::ptr_eq(&second, &slot.producer().unwrap()),
            "not made anew for fewer"
        );
    }

    /// Order rests on it, and librdkafka calls it experimental and subject to removal.
    #[test]
    fn librdkafka_still_has_a_producer_that_leaves_nothing_out() {
        let (shared, config) = (shared(), idempotent());
        let slot = |role| {
            let limit = Duration::from_secs(20);
            Slot::new(role, &config, Requests::AsConfigured, &shared, limit)
        };
        let effective = |role, name: &str| slot(role).config().create_native_config().unwrap().get(name).unwrap();
        assert_eq!(effective(Role::Lanes, "enable.gapless.guarantee"), "true");
        assert_eq!(effective(Role::Lanes, "delivery.timeout.ms"), "0");
        assert_eq!(effective(Role::Lone, "enable.gapless.guarantee"), "false");
        assert_eq!(effective(Role::Lone, "delivery.timeout.ms"), "20000");
    }
}
