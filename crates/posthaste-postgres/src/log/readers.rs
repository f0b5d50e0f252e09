//! The readers of this instance: the one of a mapped log, or one for each shard of Posthaste's own log that it has a seat for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{BusyRow, Claim, ClaimRequest, ExtendRequest, Extended, Reading, Settled, WorkerId};
use posthaste_core::{MessageId, StoreError};
use tokio::sync::Mutex;

use super::error::LogResult;
use super::hold_ups::HoldUps;
use super::keeper::Keeper;
use super::reader::Leave;
use super::rows::failed_number;
use super::shard::NO_EPOCH;
use super::slots::Slots;
use super::{Log, Reader, Shard};

/// How long readers may change places in one claim.
const TURNS_WITHIN: Duration = Duration::from_millis(500);

/// The readers of this instance.
#[derive(Debug)]
pub(super) struct Readers {
    log: Arc<Log>,
    /// By their shards.
    held: RwLock<BTreeMap<i32, Held>>,
    /// None for a mapped log, whose only reader is always there, and contends for its lock by itself.
    keeper: Option<Mutex<Keeper>>,
    /// How many of them have a connection; None where there is one reader.
    slots: Option<Slots>,
    hold_ups: HoldUps,
    /// Whether other instances were there at the last look.
    has_company: AtomicBool,
    /// Whose turn it is.
    turn: AtomicUsize,
    /// When it last asked for messages.
    claimed_at: std::sync::Mutex<Option<Instant>>,
}

#[derive(Clone, Debug)]
struct Held {
    reader: Arc<Reader>,
    /// It is to be handed over, so nothing more is claimed of it.
    leaving: bool,
}

impl Readers {
    pub(super) fn of(log: &Arc<Log>) -> Self {
        let mut held = BTreeMap::new();
        let schema = log.map.schema().filter(|_| log.is_native());
        let keeper = schema.map(|schema| Mutex::new(Keeper::new(schema)));
        let slots = schema.map(|schema| Slots::new(schema, log.options.max_readers));
        if keeper.is_none() {
            let reader = Arc::new(Reader::new(log, None));
            held.insert(0, Held { reader, leaving: false });
        }
        Self {
            log: Arc::clone(log),
            held: RwLock::new(held),
            keeper,
            slots,
            hold_ups: HoldUps::default(),
            has_company: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            claimed_at: std::sync::Mutex::default(),
        }
    }

    /// All that this instance has.
    pub(super) fn all(&self) -> Vec<Arc<Reader>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.values().map(|held| Arc::clone(&held.reader)).collect()
    }

    /// The reader of a shard, if this instance has it.
    pub(super) fn of_shard(&self, shard: i32) -> Option<Arc<Reader>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.get(&shard).map(|held| Arc::clone(&held.reader))
    }

    /// One that can be asked what is stored of a shard, whoever reads it.
    pub(super) fn onlooker(&self, shard: i32) -> Arc<Reader> {
        let onlooker = || Arc::new(Reader::new(&self.log, Shard::of(&self.log.map, shard, NO_EPOCH)));
        self.of_shard(shard).unwrap_or_else(onlooker)
    }

    /// What this instance knows of how it reads.
    pub(super) fn reading(&self) -> Reading {
        let all = self.all();
        let reading = all.iter().filter(|reader| reader.seems_to_read());
        let shards = reading.filter_map(|reader| Some(reader.shard.as_ref()?.number));
        let contended = all.iter().filter_map(|reader| reader.contention.notice());
        Reading {
            shards: shards.collect(),
            has_company: self.has_company.load(Ordering::Relaxed),
            waiting: self.hold_ups.waiting(self.log.now()),
            notices: self.hold_ups.notices().into_iter().chain(contended).collect(),
        }
    }

    /// Whether it reads the log, or the first of its shards.
    pub(super) async fn reads_the_first(&self) -> bool {
        match self.of_shard(0) {
            Some(reader) => reader.reads().await,
            None => false,
        }
    }

    /// Those that may be claimed from, each of them first in its turn.
    fn in_turn(&self) -> Vec<Arc<Reader>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let staying = held.values().filter(|held| !held.leaving);
        let mut readers: Vec<_> = staying.map(|held| Arc::clone(&held.reader)).collect();
        if let Some(count) = readers.len().checked_sub(1) {
            readers.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % (count + 1));
        }
        readers
    }

    /// Takes from one shard after another until the claim is full.
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        *self.claimed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.log.now());
        let mut claim = Claim::default();
        let mut rest = request.clone();
        let mut failed = None;
        let all = self.all();
        let mut in_turn = self.in_turn();
        // The others hand out nothing beside what has to be alone, nor before it.
        if let Some(place) = in_turn.iter().position(|reader| reader.load().is_exclusive()) {
            in_turn = vec![in_turn.swap_remove(place)];
        }
        let waiting = self.waiting(&in_turn).await;
        let begun = Instant::now();
        for reader in in_turn {
            let is_new = !reader.is_connected();
            if is_new && !self.find_room(&reader, waiting.as_ref(), &all, begun).await {
                continue;
            }
            let others = all.iter().filter(|other| !Arc::ptr_eq(other, &reader));
            let others = others.map(|other| other.load().in_flight).sum();
            let more = match reader.claim(&rest, others).await {
                Ok(more) => more,
                Err(error) => {
                    let is_refused = is_new && error.is_refused_connection();
                    let error = StoreError::from(error);
                    // Those that have a connection go on, and take turns with those that have none.
                    if is_refused && self.goes_on_without(&error, &all) {
                        continue;
                    }
                    // One that cannot be read does not keep the others waiting.
                    self.say_unreadable(&reader, &error);
                    failed = Some(error);
                    continue;
                }
            };
            let bytes: usize = more.messages.iter().map(|claimed| claimed.message.payload.len()).sum();
            rest.max_bytes = rest.max_bytes.saturating_sub(bytes as u64);
            rest.limit = rest
                .limit
                .saturating_sub(u32::try_from(more.messages.len()).unwrap_or(u32::MAX));
            if claim.messages.is_empty() {
                claim.messages = more.messages;
            } else {
                claim.messages.extend(more.messages);
            }
            claim.died.extend(more.died);
            claim.reclaimed |= more.reclaimed;
            if reader.load().is_exclusive() {
                break;
            }
            // Each gives one message at least, which may be larger than what is left.
            if rest.limit == 0 || rest.max_bytes < request.max_bytes / 2 {
                break;
            }
        }
        match failed {
            Some(error) if claim.messages.is_empty() && claim.died.is_empty() => Err(error),
            _ => Ok(claim),
        }
    }

    /// Which of these have something to hand out; all, where each of them can have a connection.
    async fn waiting(&self, readers: &[Arc<Reader>]) -> Option<BTreeSet<i32>> {
        let slots = self.slots.as_ref()?;
        let connected = readers.iter().filter(|reader| reader.is_connected()).count();
        if readers.len() <= slots.allowed(connected) {
            return None;
        }
        let apart = readers.iter().filter(|reader| !reader.is_connected());
        let apart: Vec<i32> = apart.filter_map(|reader| Some(reader.shard.as_ref()?.number)).collect();
        match slots.waiting(&self.log.pool, &apart).await {
            Ok(waiting) => Some(waiting),
            Err(error) => {
                slots.say_waiting(&StoreError::from(error));
                Some(BTreeSet::new())
            }
        }
    }

    /// Lets a reader have a connection, in the place of one that is at rest if there are no more.
    async fn find_room(
        &self,
        reader: &Arc<Reader>,
        waiting: Option<&BTreeSet<i32>>,
        all: &[Arc<Reader>],
        begun: Instant,
    ) -> bool {
        let Some(slots) = &self.slots else { return true };
        let connected: Vec<_> = all.iter().filter(|reader| reader.is_connected()).collect();
        let shard = reader.shard.as_ref().map(|shard| shard.number);
        let is_idle = |waiting: &BTreeSet<i32>| shard.is_none_or(|shard| !waiting.contains(&shard));
        if !connected.is_empty() && waiting.is_some_and(is_idle) {
            return false;
        }
        if connected.len() < slots.allowed(connected.len()) {
            return true;
        }
        if begun.elapsed() > TURNS_WITHIN {
            return false;
        }
        // Those that found nothing the last time go first.
        let (idle, busy): (Vec<_>, Vec<_>) = connected.into_iter().partition(|reader| reader.is_idle());
        for other in idle.into_iter().chain(busy) {
            if other.load().in_flight > 0 {
                continue;
            }
            match other.close(Leave::ForNow).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => self.say_unreadable(other, &StoreError::from(error)),
            }
        }
        false
    }

    /// The server gave no connection: says whether other readers of this instance have one.
    fn goes_on_without(&self, error: &StoreError, all: &[Arc<Reader>]) -> bool {
        let Some(slots) = &self.slots else { return false };
        slots.refused(error);
        all.iter().any(|reader| reader.is_connected())
    }

    fn say_unreadable(&self, reader: &Reader, error: &StoreError) {
        if let (Some(slots), Some(shard)) = (&self.slots, &reader.shard) {
            slots.say_unreadable(shard.number, error);
        } else {
            tracing::warn!(%error, "the log cannot be read");
        }
    }

    pub(super) async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let readers = self.all();
        // What it has not handed out nobody here has.
        if let [reader] = readers.as_slice() {
            return Ok(reader.settle(settlements).await?);
        }
        // Mostly all are of one shard, and go there as they are.
        if let Some(shard) = only_shard(settlements)
            && let Some(reader) = self.of_shard(shard)
        {
            return Ok(reader.settle(settlements).await?);
        }
        let mut settled = Settled::default();
        let mut parts: BTreeMap<i32, Vec<Settlement>> = BTreeMap::new();
        for settlement in settlements {
            match self.shard_of(&readers, settlement.id).await {
                Some(shard) => parts.entry(shard).or_default().push(settlement.clone()),
                None => settled.lost.push(settlement.id),
            }
        }
        let (mut unheard, mut failed) = (Vec::new(), None);
        let mut any = !settled.lost.is_empty();
        for (shard, part) in parts {
            let Some(reader) = self.of_shard(shard) else {
                settled.lost.extend(part.iter().map(|settlement| settlement.id));
                continue;
            };
            match reader.settle(&part).await {
                Ok(more) => {
                    any = true;
                    settled.lost.extend(more.lost);
                    settled.refused.extend(more.refused);
                    settled.busy.extend(more.busy);
                }
                Err(error) => {
                    unheard.extend(part.into_iter().map(|settlement| settlement.id));
                    failed = Some(StoreError::from(error));
                }
            }
        }
        match failed {
            Some(error) if !any => Err(error),
            Some(error) => {
                // Only these are asked again: those of other shards were heard.
                tracing::warn!(%error, "verdicts on a shard of the log cannot be written");
                let busy = unheard.into_iter().map(|id| BusyRow { id, holder: None });
                settled.busy.extend(busy);
                Ok(settled)
            }
            None => Ok(settled),
        }
    }

    /// The shard of a row that was handed out.
    async fn shard_of(&self, readers: &[Arc<Reader>], id: MessageId) -> Option<i32> {
        if let Some(number) = id.number() {
            return Some(Shard::of_row(number));
        }
        let row = failed_number(id)?;
        for reader in readers {
            if reader.retries(row).await {
                return reader.shard.as_ref().map(|shard| shard.number);
            }
        }
        None
    }

    pub(super) async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let mut held = Vec::new();
        for reader in self.all() {
            held.extend(reader.extend(request.token, request.ids, request.lease).await?);
        }
        Ok(Extended::all(held))
    }

    /// The next claim looks at the seats of this instance, and each reader at its failed rows.
    pub(super) async fn rescan(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.lock().await.be_due();
        }
        for reader in self.all() {
            reader.rescan().await;
        }
    }

    pub(super) async fn keep_alive(self: &Arc<Self>) -> Result<(), StoreError> {
        if let Some(keeper) = &self.keeper {
            let asked = keeper.lock().await.asked();
            if let Some((worker, lease)) = asked {
                self.balance(worker, lease).await?;
                if self.rests_for(lease) && keeper.lock().await.has_company() {
                    tracing::info!(
                        "nothing was claimed for the time of a lease: other relays may read this one's shards"
                    );
                    return self.close().await;
                }
            }
        }
        let mut failed = None;
        for reader in self.all() {
            failed = reader.keep_alive().await.err().or(failed);
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Whether it has claimed nothing for so long and nothing is in flight: its circuit is open, or another relay leads.
    fn rests_for(&self, lease: Duration) -> bool {
        let claimed_at = *self.claimed_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_long_ago = claimed_at.is_none_or(|at| self.log.now().duration_since(at) > lease);
        is_long_ago && self.all().iter().all(|reader| reader.load().in_flight == 0)
    }

    /// Looks at the seats of this instance, if it is time to.
    pub(super) async fn balance(self: &Arc<Self>, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        if !keeper.lock().await.is_due(lease) {
            return Ok(());
        }
        // Apart, so that a call that is cut short does not end the connection by which this instance is known to be there.
        let readers = Arc::clone(self);
        let balanced = tokio::spawn(async move { readers.balance_now(worker, lease).await });
        Ok(balanced.await.map_err(StoreError::other)??)
    }

    async fn balance_now(&self, worker: WorkerId, lease: Duration) -> LogResult<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut keeper = keeper.lock().await;
        match self.balance_once(&mut keeper, worker, lease).await {
            // On a new connection, before anybody takes it for gone.
            Err(error) if error.ends_connection() => self.balance_once(&mut keeper, worker, lease).await,
            balanced => balanced,
        }
    }

    async fn balance_once(&self, keeper: &mut Keeper, worker: WorkerId, lease: Duration) -> LogResult<()> {
        let lost = keeper.sit(&self.log, worker, lease).await?;
        self.lose(&lost).await;
        let plan = keeper.plan().await?;
        self.has_company.store(plan.has_company, Ordering::Relaxed);
        self.lose(&plan.lost).await;
        if self.hold_ups.is_due(plan.waits, self.log.now()) {
            let found = keeper.hold_ups().await?;
            self.hold_ups.found(found, self.log.now());
        }
        let mut left = Vec::new();
        for shard in self.mark_leaving(keeper) {
            if self.leave(shard).await? {
                left.push(shard);
            }
        }
        let changed = match keeper.release(&left).await {
            Ok(()) => keeper.take(&plan).await,
            failed => failed,
        };
        // Also after an error: what it has a seat for nobody else reads.
        self.read_all(keeper);
        changed
    }

    /// Has a reader for each seat, whatever became of the one before.
    fn read_all(&self, keeper: &Keeper) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        for (shard, epoch) in keeper.held() {
            held.entry(shard).or_insert_with(|| {
                tracing::info!(shard, epoch, "this relay reads a shard of the log");
                let reader = Arc::new(Reader::new(&self.log, Shard::of(&self.log.map, shard, epoch)));
                Held { reader, leaving: false }
            });
        }
        if let Some(slots) = &self.slots {
            slots.say_turns(held.len());
        }
    }

    async fn lose(&self, shards: &[i32]) {
        for shard in shards {
            if let Some(reader) = self.remove(*shard) {
                tracing::warn!(shard, "another relay reads this shard of the log now");
                reader.give_up().await;
            }
        }
    }

    /// Claims nothing more of what is to be handed over, and says what that is.
    fn mark_leaving(&self, keeper: &Keeper) -> Vec<i32> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        for (shard, held) in held.iter_mut() {
            held.leaving = keeper.is_leaving(*shard);
        }
        held.iter()
            .filter(|(_, held)| held.leaving)
            .map(|(shard, _)| *shard)
            .collect()
    }

    /// Gives up a shard, if none of it is in flight.
    async fn leave(&self, shard: i32) -> LogResult<bool> {
        let Some(reader) = self.of_shard(shard) else {
            return Ok(true);
        };
        let left = reader.close(Leave::ForGood).await?;
        if left {
            tracing::info!(shard, "this shard of the log is handed over");
            self.remove(shard);
        }
        Ok(left)
    }

    fn remove(&self, shard: i32) -> Option<Arc<Reader>> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.remove(&shard).map(|held| held.reader)
    }

    /// Stores how far everything was read and lets others read, as far as no answers are open.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let Some(keeper) = &self.keeper else {
            for reader in self.all() {
                reader.close(Leave::AtTheEnd).await?;
            }
            return Ok(());
        };
        let mut keeper = keeper.lock().await;
        let shards: Vec<i32> = {
            let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
            held.keys().copied().collect()
        };
        let (mut left, mut failed) = (Vec::new(), None);
        for shard in &shards {
            match self.leave(*shard).await {
                Ok(true) => left.push(*shard),
                Ok(false) => {
                    // Answers are open. That it goes is written down all the same, so that nobody is blamed for it.
                    if let Some(reader) = self.of_shard(*shard)
                        && let Err(error) = reader.close(Leave::AtTheEnd).await
                    {
                        failed = Some(error);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        keeper.release(&left).await?;
        if left.len() == shards.len() {
            keeper.close().await?;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// The shard of all of these, if they are fresh rows of one.
fn only_shard(settlements: &[Settlement]) -> Option<i32> {
    let mut shards = settlements
        .iter()
        .map(|settlement| settlement.id.number().map(Shard::of_row));
    let first = shards.next()??;
    shards.all(|shard| shard == Some(first)).then_some(first)
}
