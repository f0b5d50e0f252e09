//! A broker in memory: a second source, over which the runtime keeps the same promises as over Kafka.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use posthaste_consumer::source::{
    Commit, CommitError, DeadLetterSink, Lane, RebalanceListener, Record, Source, SourceError, Written,
};
use posthaste_core::envelope::ReceivedEvent;
use tokio::sync::oneshot;

/// What the broker keeps, shared by all members of the group.
#[derive(Clone, Default)]
pub struct Broker(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    logs: HashMap<Lane, Vec<Bytes>>,
    committed: BTreeMap<Lane, i64>,
    commits: usize,
    received: HashMap<Lane, usize>,
    dead_letters: Vec<DeadLetter>,
    refused_commits: usize,
    refused_dead_letters: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub offset: i64,
    pub error: String,
    pub attempts: u32,
    /// The lane's committed position when it came.
    pub committed: Option<i64>,
}

impl Broker {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Appends payloads to a lane.
    pub fn append(&self, lane: &Lane, payloads: impl IntoIterator<Item = String>) {
        let payloads = payloads.into_iter().map(Bytes::from);
        self.with(|state| state.logs.entry(lane.clone()).or_default().extend(payloads));
    }

    pub fn committed(&self, lane: &Lane) -> Option<i64> {
        self.with(|state| state.committed.get(lane).copied())
    }

    /// How many commits were made.
    pub fn commits(&self) -> usize {
        self.with(|state| state.commits)
    }

    /// How many records of a lane were handed over.
    pub fn received(&self, lane: &Lane) -> usize {
        self.with(|state| state.received.get(lane).copied().unwrap_or_default())
    }

    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.with(|state| state.dead_letters.clone())
    }

    pub fn refuse_commits(&self, count: usize) {
        self.with(|state| state.refused_commits = count);
    }

    pub fn refuse_dead_letters(&self, count: usize) {
        self.with(|state| state.refused_dead_letters = count);
    }

    /// A new member of the group, without lanes.
    pub fn join(&self) -> (Member, MemorySource) {
        let (sender, orders) = mpsc::channel();
        let listener = Arc::default();
        let member = Member {
            orders: sender,
            listener: Arc::clone(&listener),
        };
        let source = MemorySource {
            broker: self.clone(),
            orders,
            listener,
            positions: HashMap::new(),
        };
        (member, source)
    }
}

enum Order {
    Assign(Lane),
    Revoke(Lane),
    Lose(Lane),
    Fail(String),
}

type Listener = Arc<OnceLock<Arc<dyn RebalanceListener>>>;

/// One member of the group, as the group's coordinator sees it.
pub struct Member {
    orders: Sender<(Order, oneshot::Sender<()>)>,
    listener: Listener,
}

impl Member {
    pub async fn assign(&self, lane: &Lane) {
        self.order(Order::Assign(lane.clone())).await;
    }

    /// Returns when the member has given the lane up.
    pub async fn revoke(&self, lane: &Lane) {
        self.order(Order::Revoke(lane.clone())).await;
    }

    pub async fn lose(&self, lane: &Lane) {
        self.order(Order::Lose(lane.clone())).await;
    }

    pub async fn fail(&self, why: &str) {
        self.order(Order::Fail(why.to_owned())).await;
    }

    async fn order(&self, order: Order) {
        let (done, answer) = oneshot::channel();
        self.orders.send((order, done)).unwrap();
        if let Some(listener) = self.listener.get() {
            listener.wake();
        }
        answer.await.unwrap();
    }
}

pub struct MemorySource {
    broker: Broker,
    orders: Receiver<(Order, oneshot::Sender<()>)>,
    listener: Listener,
    positions: HashMap<Lane, i64>,
}

impl Source for MemorySource {
    type Record = MemoryRecord;

    fn committer(&self) -> Arc<dyn Commit> {
        Arc::new(self.broker.clone())
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterSink<MemoryRecord>> {
        Arc::new(self.broker.clone())
    }

    fn subscribe(&mut self, listener: Arc<dyn RebalanceListener>) -> Result<(), SourceError> {
        self.listener.get_or_init(|| listener);
        Ok(())
    }

    fn serve(&mut self) -> Result<(), SourceError> {
        let listener = self.listener.get().unwrap();
        while let Ok((order, done)) = self.orders.try_recv() {
            let mut result = Ok(());
            match order {
                Order::Assign(lane) => {
                    let position = self.broker.committed(&lane).unwrap_or_default();
                    self.positions.insert(lane.clone(), position);
                    listener.assigned(&lane);
                }
                Order::Revoke(lane) => listener.revoked(&[lane]),
                Order::Lose(lane) => listener.lost(&[lane]),
                Order::Fail(why) => result = Err(SourceError(why)),
            }
            done.send(()).unwrap();
            result?;
        }
        Ok(())
    }

    fn receive(&mut self, lane: &Lane) -> Result<Option<MemoryRecord>, SourceError> {
        let position = self.positions.get_mut(lane).expect("only assigned lanes are asked");
        Ok(self.broker.with(|state| {
            let payload = state.logs.get(lane)?.get(usize::try_from(*position).unwrap())?;
            *state.received.entry(lane.clone()).or_default() += 1;
            let record = MemoryRecord {
                lane: lane.clone(),
                offset: *position,
                payload: payload.clone(),
            };
            *position += 1;
            Some(record)
        }))
    }
}

impl Commit for Broker {
    fn commit(&self, positions: &[(Lane, i64)]) -> Result<(), CommitError> {
        self.with(|state| {
            if state.refused_commits > 0 {
                state.refused_commits -= 1;
                return Err(CommitError::failed("the coordinator is not available"));
            }
            state.commits += 1;
            state.committed.extend(positions.iter().cloned());
            Ok(())
        })
    }
}

impl DeadLetterSink<MemoryRecord> for Broker {
    fn destination(&self, record: &MemoryRecord) -> String {
        format!("{}.dead", record.topic())
    }

    fn write<'a>(&'a self, record: &'a MemoryRecord, error: &'a str, attempts: u32) -> Written<'a> {
        Box::pin(async move {
            self.with(|state| {
                if state.refused_dead_letters > 0 {
                    state.refused_dead_letters -= 1;
                    return Err("the queue is full".to_owned());
                }
                state.dead_letters.push(DeadLetter {
                    offset: record.offset,
                    error: error.to_owned(),
                    attempts,
                    committed: state.committed.get(&record.lane).copied(),
                });
                Ok(())
            })
        })
    }
}

pub struct MemoryRecord {
    lane: Lane,
    offset: i64,
    payload: Bytes,
}

impl Record for MemoryRecord {
    fn topic(&self) -> &str {
        &self.lane.topic
    }

    fn partition(&self) -> i32 {
        self.lane.partition
    }

    fn offset(&self) -> i64 {
        self.offset
    }

    fn key(&self) -> Option<&[u8]> {
        None
    }

    fn size(&self) -> usize {
        self.payload.len()
    }

    /// The payload is the event, named by its place.
    fn event(&self) -> Result<ReceivedEvent, String> {
        if self.payload.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(ReceivedEvent {
            id: format!("{}@{}", self.offset, self.lane),
            event_type: super::SOLD.to_owned(),
            source: Some("memory".to_owned()),
            subject: None,
            aggregate_type: None,
            aggregate_id: None,
            ordering_key: None,
            tenant: None,
            time: None,
            content_type: Some("application/json".to_owned()),
            headers: posthaste_core::message::Headers::new(),
            payload: self.payload.clone(),
        })
    }
}
