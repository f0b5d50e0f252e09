use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::log::Failure;

/// A database as far as a log's reader can tell: ids in order, commits in any order, locks until the end.
#[derive(Debug, Default)]
struct Database {
    next_id: i64,
    next_transaction: u32,
    open: Vec<Transaction>,
    committed: BTreeMap<i64, u32>,
    failed: BTreeMap<i64, u32>,
}

/// The key whose writers lock a row of theirs until they end.
const SERIAL: u32 = 3;

#[derive(Debug)]
struct Transaction {
    name: String,
    prepared: bool,
    rows: Vec<(i64, u32)>,
    lane: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    /// Key 0 is a lane of the transaction's own, and [`SERIAL`] one for which transactions wait for each other.
    Insert {
        whose: usize,
        key: u32,
    },
    Commit(usize),
    Rollback(usize),
    Prepare(usize),
    /// Reads; `late` commits and inserts happen between the snapshot and the look at the locks.
    Read {
        limit: usize,
        between: Vec<Step>,
    },
    /// Reads on at the end, without a look at the locks.
    ReadAhead {
        limit: usize,
    },
    /// Takes in what was read ahead, after a look at the gaps below it; what happened in between did so after the snapshot of
    /// that look and before the one at the locks.
    Take {
        count: usize,
        limit: usize,
        between: Vec<Step>,
    },
    Settle {
        which: usize,
        verdict: u8,
    },
    Restart,
}

fn database_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Begin),
        5 => (0_usize..4, 0_u32..4).prop_map(|(whose, key)| Step::Insert { whose, key }),
        3 => (0_usize..4).prop_map(Step::Commit),
        1 => (0_usize..8).prop_map(Step::Rollback),
        1 => (0_usize..8).prop_map(Step::Prepare),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => database_step(),
        4 => (1_usize..6, prop::collection::vec(database_step(), 0..4))
            .prop_map(|(limit, between)| Step::Read { limit, between }),
        4 => (1_usize..9).prop_map(|limit| Step::ReadAhead { limit }),
        4 => (1_usize..4, 1_usize..6, prop::collection::vec(database_step(), 0..3))
            .prop_map(|(count, limit, between)| Step::Take { count, limit, between }),
        6 => (0_usize..8, 0_u8..10).prop_map(|(which, verdict)| Step::Settle { which, verdict }),
        1 => Just(Step::Restart),
    ]
}

impl Database {
    fn apply(&mut self, step: &Step) {
        let pick = |which: usize, n: usize| (n > 0).then(|| which % n);
        match step {
            Step::Begin => {
                self.next_transaction += 1;
                self.open.push(Transaction {
                    name: format!("t{}", self.next_transaction),
                    prepared: false,
                    rows: Vec::new(),
                    lane: 100 + self.next_transaction,
                });
            }
            Step::Insert { whose, key } => {
                if let Some(at) = pick(*whose, self.open.len())
                    && !self.open[at].prepared
                    && !(*key == SERIAL && self.is_waited_for(at))
                {
                    self.next_id += 1;
                    let lane = if *key == 0 { self.open[at].lane } else { *key };
                    self.open[at].rows.push((self.next_id, lane));
                }
            }
            Step::Commit(whose) => {
                if let Some(at) = pick(*whose, self.open.len()) {
                    self.committed.extend(self.open.remove(at).rows);
                }
            }
            Step::Rollback(whose) => {
                if let Some(at) = pick(*whose, self.open.len()) {
                    self.open.remove(at);
                }
            }
            Step::Prepare(whose) => {
                if let Some(at) = pick(*whose, self.open.len()) {
                    self.next_transaction += 1;
                    let name = format!("p{}", self.next_transaction);
                    let transaction = &mut self.open[at];
                    (transaction.name, transaction.prepared) = (name, true);
                }
            }
            Step::Read { .. } | Step::ReadAhead { .. } | Step::Take { .. } | Step::Settle { .. } | Step::Restart => {}
        }
    }

    /// Whether another transaction than this has to end before a row of [`SERIAL`] can be written.
    fn is_waited_for(&self, at: usize) -> bool {
        let has_row = |transaction: &Transaction| transaction.rows.iter().any(|(_, key)| *key == SERIAL);
        let mut others = self.open.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, transaction)| has_row(transaction))
    }

    fn holders(&self) -> BTreeSet<Holder> {
        let inserted = |transaction: &&Transaction| !transaction.rows.is_empty();
        let holder = |transaction: &Transaction| Holder {
            name: transaction.name.clone(),
            prepared: transaction.prepared,
        };
        self.open.iter().filter(inserted).map(holder).collect()
    }
}

/// A relay over the reader, with everything it did.
struct Relay {
    reader: LogReader,
    cursor: i64,
    token: LeaseToken,
    /// Read and not taken in.
    ahead: VecDeque<LogRow>,
    /// Read beyond these, by another connection.
    beside: VecDeque<LogRow>,
    /// All gaps below them were looked at after they were read.
    is_over_gaps: bool,
    in_flight: Vec<i64>,
    delivered: BTreeSet<i64>,
    first_deliveries: Vec<i64>,
}

impl Relay {
    fn new(proof: Proof) -> Self {
        Self {
            reader: LogReader::after(0, proof),
            cursor: 0,
            token: LeaseToken::new(),
            ahead: VecDeque::new(),
            beside: VecDeque::new(),
            is_over_gaps: false,
            in_flight: Vec::new(),
            delivered: BTreeSet::new(),
            first_deliveries: Vec::new(),
        }
    }

    /// Only where nothing below waits. Beyond what was read before, in a snapshot of its own.
    fn read_ahead(&mut self, database: &Database, limit: usize) {
        if !self.beside.is_empty() || !self.reader.may_append() {
            return;
        }
        let after = self.ahead.back().map_or(self.reader.gaps.hi(), |last| last.id);
        let tail = database.committed.range(after + 1..).take(limit);
        self.beside = tail.map(|(id, key)| row(database, *id, *key)).collect();
    }

    fn forget_ahead(&mut self) {
        self.ahead.clear();
        self.beside.clear();
    }

    fn take(&mut self, database: &mut Database, count: usize, limit: usize, between: &[Step]) {
        if !self.reader.may_append() {
            self.forget_ahead();
        }
        if self.ahead.is_empty() {
            self.ahead = std::mem::take(&mut self.beside);
            self.is_over_gaps = false;
        }
        if self.ahead.is_empty() {
            return;
        }
        if self.reader.gaps.first().is_some() && !self.is_over_gaps {
            self.look_at_gaps(database, limit, between);
            if !self.is_over_gaps || !self.reader.may_append() {
                return;
            }
        }
        let count = count.min(self.ahead.len());
        let rows: Vec<LogRow> = self.ahead.drain(..count).collect();
        let Some(last) = rows.last() else { return };
        let passes_over = self.reader.passes_over(last.id, count);
        let holders = if passes_over {
            database.holders()
        } else {
            BTreeSet::new()
        };
        self.is_over_gaps &= !passes_over;
        let sorted = self.reader.append(&rows, &holders, self.token, LaneRule::OneBatch);
        self.park(database, sorted.park);
        self.in_flight.extend(sorted.handed_out);
        self.store_cursor();
    }

    fn look_at_gaps(&mut self, database: &mut Database, limit: usize, between: &[Step]) {
        let plan = self.reader.plan_known(Instant::now(), limit);
        self.is_over_gaps = self.read_plan(database, &plan, limit, between);
    }

    /// What was read before does not know of it.
    fn park(&mut self, database: &mut Database, rows: Vec<i64>) {
        if !rows.is_empty() {
            self.forget_ahead();
        }
        for id in rows {
            let key = database.committed[&id];
            assert!(database.failed.insert(id, key).is_none(), "parked once");
            self.reader.window.settle(id);
        }
    }

    fn read(&mut self, database: &mut Database, limit: usize, between: &[Step]) {
        self.forget_ahead();
        let plan = self.reader.plan(Instant::now(), limit);
        self.read_plan(database, &plan, limit, between);
    }

    /// Returns whether all of it was seen.
    fn read_plan(&mut self, database: &mut Database, plan: &Plan, limit: usize, between: &[Step]) -> bool {
        let seen = database.committed.iter().filter(|(id, _)| plan.ids.contains(**id));
        let rows: Vec<LogRow> = seen.take(limit).map(|(id, key)| row(database, *id, *key)).collect();
        let last = rows.last().filter(|_| rows.len() == limit);
        let complete_to = last.map_or(i64::MAX, |row| row.id);
        for step in between {
            database.apply(step);
        }
        let holders = database.holders();
        let read = ReadResult {
            rows,
            complete_to,
            holders,
        };
        let sorted = self.reader.read(plan, &read, self.token, true);
        self.park(database, sorted.park);
        self.in_flight.extend(sorted.handed_out);
        self.store_cursor();
        complete_to == i64::MAX
    }

    fn settle(&mut self, database: &mut Database, which: usize, verdict: u8) {
        if self.in_flight.is_empty() {
            return;
        }
        // The publisher answers in the order of the lane, as it has to; other lanes in any order.
        let at = which % self.in_flight.len();
        let lane = database.committed[&self.in_flight[at]];
        let at = self
            .in_flight
            .iter()
            .position(|id| database.committed[id] == lane)
            .unwrap_or(at);
        let id = self.in_flight.remove(at);
        assert!(self.reader.window.is_held(id, self.token));
        match verdict {
            0 | 1 => {
                self.reader.window.fail(Failure {
                    id,
                    delay: Duration::ZERO,
                    dead: false,
                    error: Some("no".to_owned()),
                });
                let rest: Vec<i64> = self
                    .in_flight
                    .extract_if(.., |other| database.committed[other] == lane)
                    .collect();
                for id in rest {
                    self.reader.window.put_back(id, None);
                }
            }
            2 => {
                self.reader.window.put_back(id, None);
                let rest: Vec<i64> = self
                    .in_flight
                    .extract_if(.., |other| database.committed[other] == lane)
                    .collect();
                for id in rest {
                    self.reader.window.put_back(id, None);
                }
            }
            _ => {
                self.reader.window.settle(id);
                self.deliver(id);
            }
        }
        for failure in self.reader.window.failures(Instant::now()) {
            self.forget_ahead();
            database.failed.insert(failure.id, database.committed[&failure.id]);
            self.reader.window.settle(failure.id);
        }
        self.store_cursor();
    }

    fn deliver(&mut self, id: i64) {
        if self.delivered.insert(id) {
            self.first_deliveries.push(id);
        }
    }

    /// The lane of retries, in one go.
    fn retry_all(&mut self, database: &mut Database) {
        for id in std::mem::take(&mut database.failed).into_keys() {
            self.deliver(id);
        }
    }

    fn store_cursor(&mut self) {
        let position = self.reader.position();
        assert!(position >= self.cursor, "the cursor never goes back");
        self.cursor = position;
    }

    fn restart(&mut self) {
        self.reader = LogReader::after(self.cursor, self.reader.gaps.proof());
        self.token = LeaseToken::new();
        self.forget_ahead();
        self.in_flight.clear();
    }

    fn drain(&mut self, database: &mut Database) {
        for _ in 0..30 {
            self.read(database, 100, &[]);
            while !self.in_flight.is_empty() {
                self.settle(database, 0, 9);
            }
            self.retry_all(database);
        }
    }
}

/// As one snapshot has it.
fn row(database: &Database, id: i64, key: u32) -> LogRow {
    LogRow {
        id,
        lane: Some((SmolStr::new("t"), SmolStr::new(key.to_string()))),
        kept: database.failed.contains_key(&id),
        held: database.failed.values().any(|held| *held == key),
    }
}

fn run(steps: &[Step], proof: Proof) -> (Database, Relay) {
    let (mut database, mut relay) = (Database::default(), Relay::new(proof));
    for step in steps {
        match step {
            Step::Read { limit, between } => relay.read(&mut database, *limit, between),
            Step::ReadAhead { limit } => relay.read_ahead(&database, *limit),
            Step::Take { count, limit, between } => relay.take(&mut database, *count, *limit, between),
            Step::Settle { which, verdict } => relay.settle(&mut database, *which, *verdict),
            Step::Restart => relay.restart(),
            step => database.apply(step),
        }
        let lost = database
            .committed
            .range(..=relay.cursor)
            .filter(|(id, _)| !relay.delivered.contains(id) && !database.failed.contains_key(id))
            .count();
        assert!(
            proof == Proof::Skipped || lost == 0,
            "the cursor passed what was not settled"
        );
    }
    relay.drain(&mut database);
    (database, relay)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Proves C9 and pitfall 1.
    #[test]
    fn every_committed_row_is_delivered_whatever_commits_late_and_nothing_else_is(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let (database, mut relay) = run(&steps, Proof::Required);
        let committed: BTreeSet<i64> = database.committed.keys().copied().collect();
        prop_assert_eq!(&relay.delivered, &committed);
        let mut last: BTreeMap<u32, i64> = BTreeMap::new();
        for id in &relay.first_deliveries {
            let lane = database.committed[id];
            let before = last.insert(lane, *id).unwrap_or(0);
            let is_ordered = lane >= 100 || lane == SERIAL;
            prop_assert!(!is_ordered || before < *id, "a transaction's rows, and those of a key with one writer at a time, are delivered in order");
        }
        // What is still open can only come from the transactions that are.
        let mut database = database;
        while !database.open.is_empty() {
            database.apply(&Step::Commit(0));
        }
        relay.drain(&mut database);
        prop_assert_eq!(relay.delivered.len(), database.committed.len());
        prop_assert_eq!(relay.reader.gaps.open(), 0, "all gaps are closed");
        prop_assert_eq!(relay.cursor, relay.reader.gaps.hi());
    }
}

/// Without the proof the same steps lose rows: that the test above passes is not for want of late commits.
#[test]
fn without_the_proof_rows_are_lost() {
    let steps = [
        Step::Begin,
        Step::Insert { whose: 0, key: 0 },
        Step::Begin,
        Step::Insert { whose: 1, key: 1 },
        Step::Commit(1),
        Step::Read {
            limit: 5,
            between: Vec::new(),
        },
        Step::Commit(0),
    ];
    let delivered = |proof| run(&steps, proof).1.first_deliveries;
    assert_eq!(delivered(Proof::Required), [2, 1]);
    assert_eq!(delivered(Proof::Skipped), [2]);
}

/// The first row is a gap whose holder was at work at the last look; the second one is found in the tail.
#[test]
fn the_rows_of_a_transaction_are_found_together() {
    let read = Step::Read {
        limit: 5,
        between: Vec::new(),
    };
    let steps = [
        Step::Begin,
        Step::Insert { whose: 0, key: 0 },
        Step::Begin,
        Step::Insert { whose: 1, key: 1 },
        Step::Commit(1),
        read.clone(),
        read.clone(),
        read.clone(),
        Step::Insert { whose: 0, key: 0 },
        Step::Commit(0),
        read,
    ];
    assert_eq!(run(&steps, Proof::Required).1.first_deliveries, [2, 1, 3]);
}

fn insert(whose: usize, key: u32) -> Step {
    Step::Insert { whose, key }
}

fn take(limit: usize) -> Step {
    let between = Vec::new();
    Step::Take {
        count: 3,
        limit,
        between,
    }
}

/// That gaps were looked at once says nothing about rows that are read later.
#[test]
fn rows_of_a_later_read_do_not_pass_those_that_came_into_gaps_meanwhile() {
    let steps = [
        Step::Begin,
        insert(0, 0),
        Step::Begin,
        insert(1, 1),
        Step::ReadAhead { limit: 5 },
        Step::Commit(1),
        Step::ReadAhead { limit: 5 },
        take(5),
        Step::Begin,
        insert(1, 2),
        Step::Commit(1),
        Step::ReadAhead { limit: 5 },
        take(5),
        insert(0, 0),
        Step::Commit(0),
        Step::ReadAhead { limit: 5 },
        take(5),
    ];
    assert_eq!(run(&steps, Proof::Required).1.first_deliveries, [2, 3, 1, 4]);
}

#[test]
fn rows_behind_gaps_wait_until_all_of_these_were_looked_at() {
    let steps = [
        Step::Begin,
        insert(0, 0),
        insert(0, SERIAL),
        Step::Begin,
        insert(1, 1),
        Step::Commit(1),
        Step::ReadAhead { limit: 5 },
        take(5),
        insert(0, SERIAL),
        Step::Commit(0),
        Step::ReadAhead { limit: 5 },
        take(1),
        Step::Settle { which: 0, verdict: 9 },
        Step::Settle { which: 0, verdict: 9 },
        take(1),
    ];
    assert_eq!(run(&steps, Proof::Required).1.first_deliveries, [3, 1, 2, 4]);
}

fn lane(key: &str) -> Lane {
    (SmolStr::new("t"), SmolStr::new(key))
}

fn rows(keys: &[(i64, &str)]) -> ReadResult {
    let row = |&(id, key): &(i64, &str)| LogRow {
        id,
        lane: Some(lane(key)),
        kept: false,
        held: false,
    };
    ReadResult {
        rows: keys.iter().map(row).collect(),
        complete_to: i64::MAX,
        holders: BTreeSet::new(),
    }
}

#[test]
fn a_lane_in_flight_gives_out_nothing_more_and_the_others_go_on() {
    let (mut reader, now) = (LogReader::after(0, Proof::Required), Instant::now());
    let [first, second] = [LeaseToken::new(), LeaseToken::new()];
    let sorted = reader.read(
        &reader.plan(now, 9),
        &rows(&[(1, "a"), (2, "a"), (3, "b")]),
        first,
        true,
    );
    assert_eq!(sorted.handed_out, [1, 2, 3], "a run of one lane goes together");
    let sorted = reader.read(&reader.plan(now, 9), &rows(&[(4, "a"), (5, "c")]), second, true);
    assert_eq!(sorted.handed_out, [5]);
    assert!(reader.plan(now, 9).free.is_empty());
    reader.window.settle(1);
    assert!(reader.plan(now, 9).free.is_empty(), "2 is in flight");
    reader.window.settle(2);
    assert_eq!(reader.plan(now, 9).free, Ranges::of(4..=4));
    assert_eq!(reader.position(), 2);
}

#[test]
fn a_lane_goes_on_behind_rows_in_flight_where_order_is_kept_but_never_past_one_that_came_back() {
    let (mut reader, now) = (LogReader::after(0, Proof::Required), Instant::now());
    let [first, second] = [LeaseToken::new(), LeaseToken::new()];
    let append = |reader: &mut LogReader, seen: &[(i64, &str)], token| {
        let rows = rows(seen).rows;
        reader
            .append(&rows, &BTreeSet::new(), token, LaneRule::Pipelined)
            .handed_out
    };
    assert_eq!(append(&mut reader, &[(1, "a"), (2, "a")], first), [1, 2]);
    assert_eq!(append(&mut reader, &[(3, "a"), (4, "b")], second), [3, 4]);
    assert!(reader.may_append());
    reader.window.put_back(2, None);
    assert_eq!(append(&mut reader, &[(5, "a"), (6, "b")], second), [6]);
    assert!(!reader.may_append(), "2 goes first");
    assert!(reader.plan(now, 9).free.is_empty(), "1 and 3 are in flight");
    reader.window.settle(1);
    reader.window.put_back(3, None);
    let plan = reader.plan(now, 9).pipelined(true);
    let seen = rows(&[(2, "a"), (3, "a"), (5, "a"), (7, "a")]);
    assert_eq!(reader.read(&plan, &seen, first, true).handed_out, [2, 3, 5, 7]);
    assert_eq!(reader.position(), 1);
}

/// What held back the first was delivered before the second was read.
#[test]
fn rows_of_a_later_snapshot_pass_none_that_waits() {
    for rule in [LaneRule::OneBatch, LaneRule::Pipelined, LaneRule::Unordered] {
        let mut reader = LogReader::after(0, Proof::Required);
        let mut rows = rows(&[(1, "a"), (2, "b"), (3, "a"), (4, "a")]).rows;
        rows[0].held = true;
        let sorted = reader.append(&rows, &BTreeSet::new(), LeaseToken::new(), rule);
        let expected = if rule == LaneRule::Unordered {
            (vec![1, 2, 3, 4], vec![])
        } else {
            (vec![2], vec![1, 3, 4])
        };
        assert_eq!((sorted.handed_out, sorted.park), expected, "{rule:?}");
    }
}

#[test]
fn a_read_may_see_more_rows_than_a_batch_takes() {
    let (mut reader, now, token) = (LogReader::after(0, Proof::Required), Instant::now(), LeaseToken::new());
    let seen = rows(&[(1, "a"), (2, "b"), (3, "b"), (4, "a"), (5, "c")]);
    let sorted = reader.read(&reader.plan(now, 2), &seen, token, true);
    assert_eq!(sorted.handed_out, [1, 2]);
    assert_eq!(
        reader.plan(now, 9).free,
        Ranges::of(5..=5),
        "the lanes of the others are in flight"
    );
    reader.window.settle(1);
    reader.window.settle(2);
    assert_eq!(
        reader.plan(now, 9).free,
        Ranges::of(3..=5),
        "they wait and are not lost"
    );
    assert_eq!(reader.position(), 2);
}

#[test]
fn a_failure_is_written_after_the_earlier_rows_of_its_lane() {
    let (mut reader, now, token) = (LogReader::after(0, Proof::Required), Instant::now(), LeaseToken::new());
    reader.read(&reader.plan(now, 9), &rows(&[(1, "a"), (2, "a")]), token, true);
    let failure = |id| Failure {
        id,
        delay: Duration::ZERO,
        dead: false,
        error: Some(String::new()),
    };
    reader.window.fail(failure(2));
    assert_eq!(
        reader.window.failures(Instant::now()),
        [],
        "1 may fail too, and comes first"
    );
    reader.window.fail(failure(1));
    assert_eq!(reader.window.failures(Instant::now()), [failure(1), failure(2)]);
    assert_eq!(reader.position(), 0, "not before it is written");
}

#[test]
fn a_postponed_row_holds_its_lane_until_it_is_due() {
    let (mut reader, now, token) = (LogReader::after(0, Proof::Required), Instant::now(), LeaseToken::new());
    reader.read(&reader.plan(now, 9), &rows(&[(1, "a"), (2, "b")]), token, true);
    let due = now + Duration::from_secs(1);
    reader.window.put_back(1, Some(due));
    reader.window.settle(2);
    let sorted = reader.read(&reader.plan(now, 9), &rows(&[(3, "a")]), token, true);
    assert_eq!(sorted, Sorted::default());
    assert!(reader.plan(now, 9).free.is_empty());
    assert_eq!(
        reader.plan(due, 9).free,
        Ranges::of(1..=1).tap(|free| free.insert(3..=3))
    );
    assert_eq!(reader.position(), 0);
}

trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for Ranges {}

#[test]
fn a_row_that_was_removed_from_the_log_holds_nobody() {
    let (mut reader, now, token) = (LogReader::after(0, Proof::Required), Instant::now(), LeaseToken::new());
    reader.read(&reader.plan(now, 9), &rows(&[(1, "a")]), token, true);
    reader.window.put_back(1, None);
    reader.read(&reader.plan(now, 9), &rows(&[]), token, true);
    assert_eq!((reader.window.len(), reader.position()), (0, 1));
}

#[test]
fn the_window_is_bounded_and_the_lanes_in_it_are_served() {
    let (mut reader, now, token) = (LogReader::after(0, Proof::Required), Instant::now(), LeaseToken::new());
    reader.read(&reader.plan(now, 9), &rows(&[(1, "hot")]), token, true);
    let many: Vec<(i64, &str)> = (2..=10_001).map(|id| (id, "hot")).collect();
    reader.read(&reader.plan(now, 9), &rows(&many), token, true);
    assert!(reader.plan(now, 9).ids.is_empty(), "no further ahead");
    reader.window.settle(1);
    assert_eq!(reader.plan(now, 9).free.count(), 9);
}

#[test]
fn a_failure_that_the_database_refuses_keeps_its_lane_and_lets_the_others_be_written() {
    let (mut reader, now) = (LogReader::after(0, Proof::Required), Instant::now());
    let token = LeaseToken::new();
    reader.read(
        &reader.plan(now, 9),
        &rows(&[(1, "a"), (2, "a"), (3, "b")]),
        token,
        true,
    );
    for id in 1..=3 {
        reader.window.fail(Failure {
            id,
            delay: Duration::ZERO,
            dead: false,
            error: Some("no".to_owned()),
        });
    }
    let ids = |reader: &LogReader, now| {
        reader
            .window
            .failures(now)
            .iter()
            .map(|failure| failure.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&reader, now), [1, 2, 3]);
    reader.window.refuse_failure(1, now);
    assert_eq!(ids(&reader, now), [3], "2 may not be written before 1");
    assert_eq!(
        ids(&reader, now + Duration::from_secs(1)),
        [1, 2, 3],
        "tried again after a second"
    );
    reader.window.refuse_failure(1, now + Duration::from_secs(1));
    assert_eq!(ids(&reader, now + Duration::from_secs(2)), [3], "then after two");
    let sorted = reader.read(&reader.plan(now, 9), &rows(&[(4, "a"), (5, "c")]), token, true);
    assert_eq!(sorted.handed_out, [5], "the lane stands still");
    assert_eq!(reader.position(), 0, "and the cursor before it");
    // Where somebody keeps the verdict in mind, the row comes again for it, after the next wait.
    let later = now + Duration::from_secs(10);
    reader.window.refuse_verdict(1, later);
    assert_eq!(ids(&reader, later), [3], "2 waits behind it");
    assert!(!reader.window.free(later + Duration::from_secs(4), 9).contains(1));
    assert!(reader.window.free(later + Duration::from_secs(5), 9).contains(1));
    reader.window.hand_out(1, token);
    reader.window.put_back(1, None);
    assert!(
        !reader.window.free(later + Duration::from_secs(4), 9).contains(1),
        "nor if it was given back"
    );
}

#[test]
fn what_waits_for_long_makes_room_for_others_but_for_verdicts_that_were_refused() {
    let (begun, token) = (Instant::now(), LeaseToken::new());
    let mut reader = LogReader::after(0, Proof::Required).keeping_places();
    let many = i64::try_from(LOOK_AHEAD).unwrap() + 2;
    let seen: Vec<_> = (1..=many)
        .map(|id| (id, if id == 2 { "refused" } else { "slow" }))
        .collect();
    let sorted = reader.read(&reader.plan(begun, 2), &rows(&seen), token, true);
    assert_eq!(sorted.handed_out, [1, 2]);
    reader.window.refuse_verdict(2, begun);
    assert!(!reader.has_room());
    assert_eq!(reader.make_room(begun), 0, "they may go soon");
    let later = begun + MAX_STANDSTILL;
    assert_eq!(
        reader.make_room(begun + MAX_STANDSTILL.saturating_sub(Duration::from_millis(1))),
        0
    );
    assert_eq!(reader.make_room(later), LOOK_AHEAD);
    let written: Vec<i64> = reader.window.failures(later).iter().map(|failure| failure.id).collect();
    assert!(
        written.iter().copied().eq(3..=many),
        "beside those in flight, whose places are lower"
    );
    for id in written {
        reader.window.settle(id);
    }
    assert!(reader.has_room());
    assert_eq!((reader.window.len(), reader.position()), (2, 0));
}

/// A lane that may go goes, however long the table of failures takes nothing.
#[test]
fn what_could_not_be_written_to_make_room_goes_when_it_may_and_is_not_written_again_for_a_while() {
    let (begun, token) = (Instant::now(), LeaseToken::new());
    let mut reader = LogReader::after(0, Proof::Required).keeping_places();
    let many = i64::try_from(LOOK_AHEAD).unwrap() + 1;
    let seen: Vec<_> = (1..=many).map(|id| (id, "slow")).collect();
    reader.read(&reader.plan(begun, 1), &rows(&seen), token, true);
    reader.make_room(begun);
    let later = begun + MAX_STANDSTILL;
    assert_eq!(reader.make_room(later), LOOK_AHEAD);
    let mut news = 0;
    for row in reader.window.failures(later) {
        news += usize::from(reader.window.keep_waiting(&row, later));
    }
    assert_eq!((news, reader.window.has_failed()), (1, false), "it is said once");
    reader.window.settle(1);
    assert_eq!(reader.plan(later, 9).free, Ranges::of(2..=10));
    reader.window.hand_out(2, token);
    assert_eq!(
        reader.window.park_blocked(later),
        0,
        "nor is the database asked at once again"
    );
    let rested = later + Duration::from_secs(1);
    assert_eq!(reader.window.park_blocked(rested), LOOK_AHEAD - 1);
    let row = reader.window.failures(rested).remove(0);
    assert!(reader.window.keep_waiting(&row, rested), "this is news again");
}

#[test]
fn what_stands_behind_a_failure_and_could_not_be_written_is_looked_at_after_a_while() {
    let (mut reader, now, token) = (LogReader::after(0, Proof::Required), Instant::now(), LeaseToken::new());
    reader.read(
        &reader.plan(now, 9),
        &rows(&[(1, "a"), (2, "a"), (3, "b")]),
        token,
        true,
    );
    reader.window.fail(Failure::parked(1));
    reader.window.put_back(2, None);
    reader.window.put_back(3, None);
    assert!(reader.window.keep_waiting(&Failure::parked(1), now));
    assert_eq!(reader.plan(now, 9).free, Ranges::of(3..=3), "2 is behind it");
    assert_eq!(reader.plan(now + Duration::from_secs(1), 9).free, Ranges::of(1..=3));
}

/// Whoever had it in his hands had seen it.
#[test]
fn a_number_without_a_row_has_killed_nobody() {
    let (now, token) = (Instant::now(), LeaseToken::new());
    let state: ReaderState = "10;3-3,5-5,7-7".parse().unwrap();
    let handed_out: HandedOut = "20;".parse().unwrap();
    let mut reader = LogReader::resume(&state, Proof::Required).suspecting(handed_out.suspects(&state));
    let is_suspected = |reader: &LogReader| [3, 5, 7].map(|id| reader.suspects.crashes(id) > 0);
    assert_eq!(is_suspected(&reader), [true, true, true]);
    let open = Holder {
        name: "open".to_owned(),
        prepared: false,
    };
    let mut seen = rows(&[(5, "a")]);
    (seen.complete_to, seen.holders) = (5, BTreeSet::from([open.clone()]));
    reader.read(&reader.plan(now, 9), &seen, token, true);
    assert_eq!(
        is_suspected(&reader),
        [false, true, true],
        "7 was not looked at, and 5 is there"
    );
    let mut seen = rows(&[(11, "b"), (14, "c")]);
    seen.holders = BTreeSet::from([open]);
    reader.read(&reader.plan(now, 9), &seen, token, true);
    for id in [5, 11, 14] {
        reader.window.settle(id);
    }
    reader.handed_out(14);
    assert!(reader.suspects.is_empty(), "{:?}", reader.suspects);
    assert_eq!(reader.gaps().open(), 4, "3, 7, 12 and 13 may come yet");
}

/// A reader that reads on is left alone, and so is a table whose order is that in which it is written.
#[test]
fn rows_that_wait_stay_where_a_reader_makes_progress_or_their_order_would_be_lost() {
    let (begun, token) = (Instant::now(), LeaseToken::new());
    let mut reader = LogReader::after(0, Proof::Required);
    let many = i64::try_from(LOOK_AHEAD).unwrap() + 1;
    let read = |reader: &mut LogReader, ids: std::ops::RangeInclusive<i64>| {
        let seen: Vec<_> = ids.map(|id| (id, "slow")).collect();
        reader.read(&reader.plan(begun, 1), &rows(&seen), token, true)
    };
    assert_eq!(read(&mut reader, 1..=many).handed_out, [1]);
    assert_eq!(reader.make_room(begun), 0);
    for id in 2..=PROGRESS + 1 {
        reader.window.settle(id);
    }
    read(&mut reader, many + 1..=many + PROGRESS);
    assert!(!reader.has_room());
    let later = begun + MAX_STANDSTILL;
    assert_eq!(reader.make_room(later), 0, "it has read on");
    assert_eq!(reader.make_room(later + MAX_STANDSTILL), LOOK_AHEAD);
    assert_eq!(
        reader.window.failures(later),
        [],
        "1 may fail, too, and has to be written first"
    );
}
