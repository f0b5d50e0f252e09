//! Writes verdicts back, as many at once as have come in.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::breaker::CircuitState;
use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{ExtendRequest, Settled, StoreErrorKind};
use posthaste_core::{MessageId, StoreError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::engine::Engine;
use crate::guard::in_flight::Load;
use crate::guard::refusals::{FIRST_BUSY_WAIT, Hold};
use crate::net::{self, Caught};
use crate::path::failpoint;
use crate::path::outcome_collector::Piece;
use crate::path::slab::Slab;
use crate::reported::{InFlightMessage, Reported};
use crate::upkeep::instrument;
use crate::upkeep::retry_logger::RetryLogger;
use crate::upkeep::undelivered::Cause;

/// Most verdicts of one statement.
const MAX_SETTLEMENTS: usize = 1_000;

/// How long the settler waits for others when few outcomes are there.
const COMPANY_WAIT: Duration = Duration::from_millis(1);

/// So many deaths in a row that the database refused, each tried alone, speak for those that wait to be tried.
const REFUSED_DEATHS: u32 = 5;

/// Settles until every sender of verdicts is gone, and tries what could not be written once more, or for as long as
/// another transaction's lock is in the way.
pub(crate) async fn run(engine: Arc<Engine>, mut pieces: UnboundedReceiver<Piece>, in_the_end: WaitFor) {
    // Claims that are settled as a whole are settled apart: each is a transaction, and one that fails would have those
    // that did not settled again.
    let most = if engine.requirements.batch_settlement {
        1
    } else {
        MAX_SETTLEMENTS
    };
    let mut settler = Settler {
        retry_logger: RetryLogger::new("settling", &engine.health),
        deaths: Vec::new(),
        refused_deaths: 0,
        engine,
    };
    let engine = Arc::clone(&settler.engine);
    let pulse = &engine.pulses.settling;
    let _running = pulse.begin();
    let mut received = Vec::with_capacity(most);
    loop {
        let retry = settler.engine.refusals.next_retry();
        pulse.waits("outcomes");
        tokio::select! {
            // While one statement runs the next verdicts gather: batches grow with the load, without a timer.
            count = pieces.recv_many(&mut received, most) => {
                if count == 0 {
                    break;
                }
                settler.wait_for_company(&mut pieces, &mut received).await;
                pulse.works();
                failpoint::pass("before_settle");
                settler.settle_pieces(&mut received).await;
                failpoint::pass("after_settle");
            }
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                settler.try_again(false, WaitFor::Database).await;
            }
            // One at a time, so that what is delivered meanwhile does not wait for a search among many.
            () = ready(()), if !settler.deaths.is_empty() => settler.search_deaths().await,
            () = settler.engine.refusals.hurried() => settler.try_again(false, WaitFor::Database).await,
        }
    }
    while !settler.deaths.is_empty() {
        settler.search_deaths().await;
    }
    // Deaths can be written once their letters are elsewhere.
    settler.engine.net.flush_file().await;
    settler.try_again(true, in_the_end).await;
    while in_the_end == WaitFor::Locks && settler.engine.refusals.busy() > 0 {
        let soon = Instant::now() + FIRST_BUSY_WAIT;
        pulse.waits("locks of others");
        // One whose try has failed is still due.
        sleep_until(settler.engine.refusals.next_retry().map_or(soon, |next| next.max(soon))).await;
        settler.try_again(false, in_the_end).await;
    }
}

/// What is done about a database that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// It is waited for.
    Database,
    /// A relay that stops has tried. But it is given a while to stop, in which locks may go.
    Locks,
    Nobody,
}

struct Settler {
    engine: Arc<Engine>,
    retry_logger: RetryLogger,
    /// Groups of deaths of which the database refuses some, where there is a net for them.
    deaths: Vec<Vec<Reported>>,
    /// Deaths in a row that were refused, each tried alone.
    refused_deaths: u32,
}

/// What the database said of verdicts, and whether it was asked more than once.
type Answer = Result<(Settled, bool), StoreError>;

/// What came of one round of settling.
#[derive(Default)]
struct Round {
    applied: usize,
    /// Those that were refused for the first time, and why.
    refused: Vec<(Reported, String)>,
    /// Those whose rows are locked for so long that it is worth a word, and by whom.
    busy: Vec<(Reported, String)>,
    /// Deaths that were refused and are on their way to the net.
    caught: Vec<Caught>,
}

/// Messages of one call of the publisher that were delivered, by place.
struct Delivered {
    slab: Arc<Slab>,
    places: Vec<u32>,
}

impl Delivered {
    fn messages(&self) -> impl Iterator<Item = &InFlightMessage> {
        self.places.iter().filter_map(|place| self.slab.get(*place as usize))
    }

    fn reported(&self) -> impl Iterator<Item = Reported> {
        self.messages().cloned().map(Reported::delivered)
    }
}

impl Settler {
    /// Waits a moment for others, if few are there and more are expected: a statement costs about as much for one as for many.
    async fn wait_for_company(&self, pieces: &mut UnboundedReceiver<Piece>, received: &mut Vec<Piece>) {
        let Engine {
            requirements,
            config,
            in_flight,
            ..
        } = &*self.engine;
        // A log writes nothing for a delivery, and where claims are settled as a whole they are complete.
        if requirements.append_only || requirements.batch_settlement {
            return;
        }
        let until = Instant::now() + COMPANY_WAIT;
        let enough = config.batch_size.div_ceil(2) as usize;
        loop {
            let there: usize = received.iter().map(Piece::len).sum();
            if there >= enough || in_flight.unanswered() == 0 {
                return;
            }
            match timeout_at(until, pieces.recv()).await {
                Ok(Some(piece)) => received.push(piece),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Writes what has come in.
    async fn settle_pieces(&mut self, pieces: &mut Vec<Piece>) {
        let (mut delivered, mut reported) = (Vec::new(), Vec::new());
        for piece in pieces.drain(..) {
            match piece {
                Piece::Reported(group) => reported.extend(group),
                Piece::Delivered(slab) => {
                    let places = slab.take_delivered();
                    if !places.is_empty() {
                        delivered.push(Delivered { slab, places });
                    }
                }
            }
        }
        // A log writes nothing for deliveries; elsewhere one statement takes all.
        if !reported.is_empty() && !self.engine.requirements.append_only {
            reported.extend(
                delivered
                    .drain(..)
                    .flat_map(|delivered| delivered.reported().collect::<Vec<_>>()),
            );
        }
        for group in groups_of(delivered, self.max_settlements()) {
            self.settle_delivered(group).await;
        }
        let most = self.max_settlements();
        while reported.len() > most {
            let rest = reported.split_off(most);
            self.settle(reported, WaitFor::Database).await;
            reported = rest;
        }
        if !reported.is_empty() {
            self.settle(reported, WaitFor::Database).await;
        }
        if self.engine.lanes.any() {
            self.engine.lanes.forget_before(self.engine.in_flight.oldest_claim());
        }
    }

    /// Most verdicts of one statement.
    fn max_settlements(&self) -> usize {
        let requirements = &self.engine.requirements;
        if requirements.append_only || requirements.batch_settlement {
            usize::MAX
        } else {
            MAX_SETTLEMENTS
        }
    }

    /// Writes that messages were delivered. If all of it is taken, little is done about each of them.
    async fn settle_delivered(&mut self, group: Vec<Delivered>) {
        let messages = group.iter().flat_map(Delivered::messages);
        let settlements: Vec<_> = messages
            .map(|message| Settlement {
                version: message.version,
                ..Settlement::delivered(message.id, message.token)
            })
            .collect();
        match self.write(&settlements, WaitFor::Database).await {
            Ok((settled, _)) if settled.lost.is_empty() && settled.refused.is_empty() && settled.busy.is_empty() => {
                self.all_delivered(&group);
            }
            answer => {
                let reported = group.iter().flat_map(Delivered::reported).collect();
                self.settle_after(Some(answer), reported, WaitFor::Database).await;
            }
        }
    }

    /// All of these were delivered, and that is written.
    fn all_delivered(&self, group: &[Delivered]) {
        let engine = &self.engine;
        let messages = || group.iter().flat_map(Delivered::messages);
        let count = group.iter().map(|delivered| delivered.places.len()).sum::<usize>();
        // A caller that waits until nothing is in flight may look at the totals next.
        let ids = messages().map(|message| message.id);
        engine
            .totals
            .delivered_all(ids, u32::try_from(count).unwrap_or(u32::MAX));
        instrument::delivered(&engine.config.scope.namespace, messages());
        for delivered in group {
            let Some(first) = delivered.messages().next() else {
                continue;
            };
            let load = Load {
                messages: u32::try_from(delivered.places.len()).unwrap_or(u32::MAX),
                bytes: delivered.messages().map(|message| message.bytes).sum(),
            };
            let places = delivered.messages().map(|message| message.place);
            engine.in_flight.finish_of(first.token, places, load);
        }
        if !engine.net.is_empty() {
            for message in messages() {
                engine.net.answered(message.id);
                engine.net.settled(message);
            }
        }
        if !engine.refusals.is_empty() {
            for message in messages() {
                if engine.refusals.written(message.id, &Verdict::Delivered) {
                    instrument::taken_after_all(&Reported::delivered(message.clone()));
                    engine.refusals.hurry();
                }
            }
        }
        engine.refusals.round(count, 0);
    }

    /// Writes verdicts, as far as the database takes them.
    async fn settle(&mut self, reported: Vec<Reported>, waits: WaitFor) {
        self.settle_after(None, reported, waits).await;
    }

    /// The same, where the first answer of the database may be there.
    async fn settle_after(&mut self, mut first: Option<Answer>, reported: Vec<Reported>, waits: WaitFor) {
        let mut round = Round::default();
        // If one verdict keeps the others from being written, it is found by halving, and the others are.
        let mut groups = vec![reported];
        while let Some(mut group) = groups.pop() {
            let answer = match first.take() {
                Some(answer) => answer,
                None => self.write(&self.settlements(&group), waits).await,
            };
            match answer {
                Ok((mut settled, again)) => {
                    if again {
                        self.leave_out_written(&group, &mut settled);
                    }
                    let swallowed = self.take_swallowed(&mut group, &mut settled).await;
                    for reported in swallowed {
                        self.refused(reported, &was_swallowed(), Hold::Leased, &mut round);
                    }
                    if group.iter().any(is_death) {
                        self.refused_deaths = 0;
                    }
                    self.settled(group, settled, &mut round);
                }
                // All of them are remembered already.
                Err(error) if waits != WaitFor::Database && error.kind.is_transient() => {}
                Err(_) if group.len() > 1 && !self.engine.requirements.batch_settlement && is_mixed(&group) => {
                    // A table of dead letters that takes nothing is no reason for the others to wait for a search.
                    let (deaths, others) = group.into_iter().partition(is_death);
                    self.search_later([deaths], &mut groups, waits);
                    groups.push(others);
                }
                Err(error)
                    if group.len() > 1
                        && !self.engine.requirements.batch_settlement
                        && (error.kind.may_be_a_refusal() || !self.engine.net.is_there() || !is_death(&group[0])) =>
                {
                    let second = group.split_off(group.len() / 2);
                    self.search_later([second, group], &mut groups, waits);
                }
                Err(error) => {
                    let is_one_death = group.len() == 1 && is_death(&group[0]);
                    for reported in group {
                        if error.kind == StoreErrorKind::Contention {
                            self.busy(reported, error.to_string(), &mut round);
                        } else {
                            self.refused(reported, &error, self.hold(), &mut round);
                        }
                    }
                    if is_one_death && error.kind != StoreErrorKind::Contention {
                        self.give_up_search(&error, &mut round);
                    }
                }
            }
        }
        let namespace = &self.engine.config.scope.namespace;
        // Those that were refused before say nothing about the others. Nor do deaths for which there is a net.
        let refused = round.refused.iter();
        let telling = refused.filter(|(reported, _)| !(self.engine.net.is_there() && is_death(reported)));
        self.engine.refusals.round(round.applied, telling.count());
        let deaths = round.refused.iter().filter(|(reported, _)| is_death(reported));
        net::instrument::caught(namespace, "table", "failed", deaths.count() as u64);
        self.engine.net.catch(std::mem::take(&mut round.caught));
        instrument::refused(namespace, &round.refused);
        instrument::busy(namespace, &round.busy);
    }

    /// Deaths for which there is a net can wait; all else is searched at once.
    fn search_later<const N: usize>(
        &mut self,
        found: [Vec<Reported>; N],
        groups: &mut Vec<Vec<Reported>>,
        waits: WaitFor,
    ) {
        let can_wait = waits == WaitFor::Database && self.engine.net.is_there() && found.iter().flatten().all(is_death);
        let search = if can_wait { &mut self.deaths } else { groups };
        search.extend(found);
    }

    /// Goes on with the search for deaths that the database refuses.
    async fn search_deaths(&mut self) {
        let Some(group) = self.deaths.pop() else { return };
        self.settle(group, WaitFor::Database).await;
    }

    /// To search among thousands for the one death that the database takes would take longer than all else. They are kept in
    /// the file, and tried again from there.
    fn give_up_search(&mut self, error: &StoreError, round: &mut Round) {
        self.refused_deaths += 1;
        if self.refused_deaths < REFUSED_DEATHS {
            return;
        }
        for reported in std::mem::take(&mut self.deaths).into_iter().flatten() {
            self.refused(reported, error, self.hold(), round);
        }
    }

    /// Tries verdicts again that could not be written.
    async fn try_again(&mut self, all: bool, waits: WaitFor) {
        for group in self.engine.refusals.retries(all) {
            self.settle(group, waits).await;
        }
    }

    /// Writes verdicts as soon as the database can be reached; what it refuses then is an error. So is another
    /// transaction's lock that stays in the way of one of them.
    async fn write(&mut self, settlements: &[Settlement], waits: WaitFor) -> Answer {
        let (mut again, mut lost_against_others) = (false, 0);
        loop {
            self.engine.pulses.settling.works();
            // The outcomes are facts: they are written however long the database is unavailable. If the leases are gone
            // by then the answer says so.
            let sent = Instant::now();
            match self.engine.store.settle(settlements).await {
                Ok(settled) => {
                    let namespace = &self.engine.config.scope.namespace;
                    instrument::settle_answered(namespace, sent.elapsed(), settlements.len());
                    self.retry_logger.recovered();
                    return Ok((settled, again));
                }
                Err(error) if error.kind.is_transient() && waits != WaitFor::Database => return Err(error),
                Err(error)
                    if error.kind == StoreErrorKind::Contention && !self.engine.requirements.batch_settlement =>
                {
                    lost_against_others += 1;
                    // Two transactions that met once need not meet again.
                    if settlements.len() == 1 || lost_against_others > 1 {
                        return Err(error);
                    }
                }
                // A database that cannot be written says nothing about these verdicts.
                Err(error) if error.kind.is_transient() => {
                    let wait = self.retry_logger.failed(&error);
                    self.engine.pulses.settling.rests(wait);
                    sleep(wait).await;
                    again = true;
                }
                Err(error) => {
                    self.retry_logger.recovered();
                    return Err(error);
                }
            }
        }
    }

    /// A write that seemed to fail may have been made, and only its answer lost. Then its rows are no longer ours,
    /// which is no loss: no other relay can have taken them while their lease held. (Where a row has a version, it may
    /// have been changed.)
    fn leave_out_written(&self, group: &[Reported], settled: &mut Settled) {
        if self.engine.requirements.batch_settlement || settled.lost.is_empty() {
            return;
        }
        let written = |Reported { message, .. }: &&Reported| {
            message.version.is_none() && self.engine.in_flight.held_throughout(message)
        };
        let written: HashSet<MessageId> = group
            .iter()
            .filter(written)
            .map(|reported| reported.message.id)
            .collect();
        settled.lost.retain(|id| {
            let is_written = written.contains(id);
            if is_written {
                tracing::debug!(%id, "its verdict was written by an earlier try whose answer was lost");
            }
            !is_written
        });
    }

    /// Takes out those that look lost though their rows are still held under their leases: a trigger or a policy has
    /// swallowed their verdicts without an error. To deliver them again would not help.
    async fn take_swallowed(&self, group: &mut Vec<Reported>, settled: &mut Settled) -> Vec<Reported> {
        let engine = &self.engine;
        if settled.lost.is_empty() || engine.requirements.batch_settlement || engine.requirements.append_only {
            return Vec::new();
        }
        let mut by_token: HashMap<LeaseToken, Vec<MessageId>> = HashMap::new();
        for Reported { message, .. } in group.iter() {
            // Where a row has a version, it may have been changed.
            let is_ours = message.version.is_none() && engine.in_flight.held_throughout(message);
            if is_ours && settled.lost.contains(&message.id) {
                by_token.entry(message.token).or_default().push(message.id);
            }
        }
        let mut held = HashSet::new();
        for (token, ids) in by_token {
            engine.pulses.settling.works();
            // If the database cannot say so now, they are taken for lost, as ever.
            if let Ok(extended) = engine
                .store
                .extend(ExtendRequest::new(token, &ids, engine.config.lease))
                .await
            {
                held.extend(extended.held);
            }
        }
        settled.lost.retain(|id| !held.contains(id));
        let (swallowed, rest) = std::mem::take(group)
            .into_iter()
            .partition(|reported| held.contains(&reported.message.id));
        *group = rest;
        swallowed
    }

    fn settled(&self, group: Vec<Reported>, settled: Settled, round: &mut Round) {
        let lost: HashSet<MessageId> = settled.lost.into_iter().collect();
        let mut refused: HashMap<MessageId, StoreError> = settled
            .refused
            .into_iter()
            .map(|refused| (refused.id, refused.error))
            .collect();
        let mut busy: HashMap<MessageId, Option<String>> =
            settled.busy.into_iter().map(|row| (row.id, row.holder)).collect();
        let mut rest = Vec::with_capacity(group.len());
        for reported in group {
            let id = reported.message.id;
            if let Some(error) = refused.remove(&id) {
                self.refused(reported, &error, Hold::Free, round);
            } else if let Some(holder) = busy.remove(&id) {
                let holder = holder.unwrap_or_else(|| "the database does not say who".to_owned());
                self.busy(reported, holder, round);
            } else {
                rest.push(reported);
            }
        }
        let engine = &self.engine;
        // A caller that waits until nothing is in flight may look at the totals next.
        self.count(&rest, &lost, round);
        engine.in_flight.finish(rest.iter().map(|reported| &reported.message));
        for reported in rest {
            let id = reported.message.id;
            engine.lanes.settled(&reported.message);
            engine.net.answered(id);
            if lost.contains(&id) {
                let may_come_again = engine.requirements.batch_settlement || engine.refusals.knows(id);
                if may_come_again && reported.verdict == Verdict::Delivered {
                    // The row is free, or claimed by this very relay in this moment, and the event is out: it does not
                    // have to go out again.
                    engine.refusals.remember(reported, Hold::Lost);
                } else {
                    engine.refusals.forget(id);
                }
                continue;
            }
            let is_final = matches!(reported.verdict, Verdict::Delivered | Verdict::Dead { .. });
            if is_final && !self.is_without_letter(&reported) {
                engine.net.settled(&reported.message);
            }
            if engine.refusals.written(id, &reported.verdict) {
                instrument::taken_after_all(&reported);
                engine.refusals.hurry();
            }
        }
    }

    fn count(&self, group: &[Reported], lost: &HashSet<MessageId>, round: &mut Round) {
        let totals = &self.engine.totals;
        let mut letters = 0;
        for reported in group {
            let Reported { message, verdict, .. } = reported;
            if lost.contains(&message.id) {
                totals.lease_lost(message.id);
            } else {
                totals.settled(message.id, verdict);
                round.applied += usize::from(*verdict != Verdict::Released);
                letters += u64::from(is_death(reported) && !self.is_without_letter(reported));
            }
        }
        let namespace = &self.engine.config.scope.namespace;
        net::instrument::caught(namespace, "table", "ok", letters);
        instrument::settled(namespace, group, lost);
        self.engine.failure_log.settled(group, lost);
        if self.engine.circuit.view().state == CircuitState::Closed {
            self.engine.waiting.tell(group);
        }
    }

    fn refused(&self, reported: Reported, error: &StoreError, hold: Hold, round: &mut Round) {
        let engine = &self.engine;
        let cause = error.to_string();
        engine.totals.undelivered(reported.message.id, Cause::Unwritten(&cause));
        if hold == Hold::Leased && reported.verdict != Verdict::Released {
            // Its lease goes on being renewed, but it takes no place from others. One that was only to be given back is
            // free when its lease is over: nothing is known of it, and it is still to be published.
            engine.in_flight.set_aside(&reported.message);
        } else {
            engine.in_flight.finish(std::iter::once(&reported.message));
        }
        if reported.verdict == Verdict::Released {
            // Nothing is remembered of it.
            engine.lanes.settled(&reported.message);
        }
        engine.net.answered(reported.message.id);
        if !reported.spooled && engine.net.is_there() {
            round.caught.extend(Caught::of(&reported, cause));
        }
        if engine.refusals.remember(reported.clone(), hold) {
            round.refused.push((reported, error.to_string()));
        }
    }

    /// Another transaction has locked a row: its neighbours do not wait for that.
    fn busy(&self, reported: Reported, holder: String, round: &mut Round) {
        let engine = &self.engine;
        let id = reported.message.id;
        let cause = format!("another transaction has locked its row: {holder}");
        engine.totals.undelivered(id, Cause::Unwritten(&cause));
        if reported.verdict == Verdict::Released && engine.refusals.knows(id) {
            // What became of it is not to be forgotten for that.
            engine.lanes.settled(&reported.message);
            engine.in_flight.finish(std::iter::once(&reported.message));
            return;
        }
        engine.in_flight.set_aside(&reported.message);
        if engine.refusals.remember(reported.clone(), Hold::Busy) {
            round.busy.push((reported, holder));
        }
    }

    fn settlements(&self, group: &[Reported]) -> Vec<Settlement> {
        let settlement = |reported: &Reported| Settlement {
            id: reported.message.id,
            token: reported.message.token,
            verdict: reported.verdict.clone(),
            version: reported.message.version,
            without_letter: self.is_without_letter(reported),
        };
        group.iter().map(settlement).collect()
    }

    /// Whether it is a death whose letter stays in the file: the table of dead letters has refused it.
    fn is_without_letter(&self, reported: &Reported) -> bool {
        reported.spooled && is_death(reported) && self.engine.requirements.dead_letter_table
    }

    /// Where rows are whose verdicts were refused by a call that failed as a whole.
    fn hold(&self) -> Hold {
        if self.engine.requirements.batch_settlement {
            Hold::Free
        } else {
            Hold::Leased
        }
    }
}

/// Parts these so that each group has no more than so many messages.
fn groups_of(delivered: Vec<Delivered>, most: usize) -> Vec<Vec<Delivered>> {
    let (mut groups, mut room) = (Vec::new(), 0);
    for mut delivered in delivered {
        loop {
            if room == 0 {
                groups.push(Vec::new());
                room = most;
            }
            let rest = delivered.places.split_off(room.min(delivered.places.len()));
            room -= delivered.places.len();
            let slab = Arc::clone(&delivered.slab);
            groups.last_mut().expect("one was pushed").push(delivered);
            if rest.is_empty() {
                break;
            }
            delivered = Delivered { slab, places: rest };
        }
    }
    groups
}

fn was_swallowed() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message: "the database took the verdict without an error, and the row is as it was".to_owned(),
        remedy: Some("look for a trigger, a rule or a row policy on the outbox that swallows updates"),
        source: None,
    }
}

fn is_death(reported: &Reported) -> bool {
    matches!(reported.verdict, Verdict::Dead { .. })
}

fn is_mixed(group: &[Reported]) -> bool {
    group.iter().any(is_death) && !group.iter().all(is_death)
}
