//! Random schedules of transactions, reads, checkpoints and restarts: the reader of a log against an oracle, and against
//! what its predecessors had settled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_sql::log::{Holder, LogReader, LogRow, Proof, ReadResult, ReaderState};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Begin,
    Insert(usize),
    Commit(usize),
    Rollback(usize),
    Prepare(usize),
    /// `between` happens after the snapshot was taken and before the locks are looked up.
    Read {
        limit: usize,
        between: Vec<Step>,
    },
    Settle(usize),
    PutBack(usize),
    Checkpoint,
    /// `clean` if the reader could write down its state.
    Restart {
        clean: bool,
    },
}

fn database_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Begin),
        5 => (0_usize..8).prop_map(Step::Insert),
        3 => (0_usize..8).prop_map(Step::Commit),
        1 => (0_usize..8).prop_map(Step::Rollback),
        1 => (0_usize..8).prop_map(Step::Prepare),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => database_step(),
        4 => (1_usize..6, prop::collection::vec(database_step(), 0..4))
            .prop_map(|(limit, between)| Step::Read { limit, between }),
        4 => (0_usize..8).prop_map(Step::Settle),
        1 => (0_usize..8).prop_map(Step::PutBack),
        2 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

/// A database as far as a log's reader can tell: ids and transaction numbers in order, commits in any order.
#[derive(Debug, Default)]
struct Database {
    next_id: i64,
    next_xid: u64,
    next_name: u32,
    open: Vec<Transaction>,
    /// By id, with the number of their transaction.
    committed: BTreeMap<i64, u64>,
}

#[derive(Debug)]
struct Transaction {
    holder: Holder,
    /// Assigned by the first write.
    xid: Option<u64>,
    rows: Vec<i64>,
}

impl Database {
    fn apply(&mut self, step: &Step) {
        let pick = |which: usize, n: usize| (n > 0).then(|| which % n);
        match step {
            Step::Begin => {
                let holder = self.name("t", false);
                self.open.push(Transaction {
                    holder,
                    xid: None,
                    rows: Vec::new(),
                });
            }
            Step::Insert(whose) => {
                if let Some(at) = pick(*whose, self.open.len())
                    && !self.open[at].holder.prepared
                {
                    self.next_id += 1;
                    self.open[at].rows.push(self.next_id);
                    if self.open[at].xid.is_none() {
                        self.next_xid += 1;
                        self.open[at].xid = Some(self.next_xid);
                    }
                }
            }
            Step::Commit(whose) => {
                if let Some(at) = pick(*whose, self.open.len()) {
                    let Transaction { xid, rows, .. } = self.open.remove(at);
                    let xid = xid.unwrap_or_default();
                    self.committed.extend(rows.into_iter().map(|id| (id, xid)));
                }
            }
            Step::Rollback(whose) => {
                if let Some(at) = pick(*whose, self.open.len()) {
                    self.open.remove(at);
                }
            }
            Step::Prepare(whose) => {
                if let Some(at) = pick(*whose, self.open.len()) {
                    self.open[at].holder = self.name("p", true);
                }
            }
            step => unreachable!("{step:?} is the reader's"),
        }
    }

    fn name(&mut self, kind: &str, prepared: bool) -> Holder {
        self.next_name += 1;
        let name = format!("{kind}{}", self.next_name);
        Holder { name, prepared }
    }

    fn holders(&self) -> BTreeSet<Holder> {
        let inserted = self.open.iter().filter(|transaction| !transaction.rows.is_empty());
        inserted.map(|transaction| transaction.holder.clone()).collect()
    }

    /// What `where xid < pg_snapshot_xmin(pg_current_snapshot())` finds.
    fn below_watermark(&self) -> BTreeSet<i64> {
        let open = self.open.iter().filter_map(|transaction| transaction.xid);
        let xmin = open.min().unwrap_or(self.next_xid + 1);
        let below = self.committed.iter().filter(|(_, xid)| **xid < xmin);
        below.map(|(id, _)| *id).collect()
    }

    fn lowest_undecided(&self) -> Option<i64> {
        self.open
            .iter()
            .filter_map(|transaction| transaction.rows.first())
            .min()
            .copied()
    }
}

struct Relay {
    reader: LogReader,
    token: LeaseToken,
    in_flight: Vec<i64>,
    delivered: BTreeSet<i64>,
    /// Delivered, and not yet in what is stored.
    unstored: BTreeSet<i64>,
    /// What a successor may send again, though it was sent.
    may_repeat: BTreeSet<i64>,
    /// As text, as it is stored.
    stored: String,
    position: i64,
}

impl Relay {
    fn new() -> Self {
        Self {
            reader: LogReader::after(0, Proof::Required),
            token: LeaseToken::new(),
            in_flight: Vec::new(),
            delivered: BTreeSet::new(),
            unstored: BTreeSet::new(),
            may_repeat: BTreeSet::new(),
            stored: ReaderState::at(0).to_string(),
            position: 0,
        }
    }

    fn act(&mut self, database: &mut Database, step: &Step) {
        match step {
            Step::Read { limit, between } => self.read(database, *limit, between),
            Step::Settle(which) => self.settle(*which),
            Step::PutBack(which) => self.put_back(*which),
            Step::Checkpoint => self.checkpoint(),
            Step::Restart { clean } => self.restart(*clean),
            step => database.apply(step),
        }
    }

    fn read(&mut self, database: &mut Database, limit: usize, between: &[Step]) {
        let plan = self.reader.plan(Instant::now(), limit);
        let planned = database.committed.keys().filter(|id| plan.ids.contains(**id));
        let seen: Vec<i64> = planned.take(limit).copied().collect();
        let complete_to = seen.last().filter(|_| seen.len() == limit).map_or(i64::MAX, |id| *id);
        for step in between {
            database.apply(step);
        }
        let row = |id: i64| LogRow {
            id,
            lane: None,
            kept: false,
            held: false,
        };
        let read = ReadResult {
            rows: seen.into_iter().map(row).collect(),
            complete_to,
            holders: database.holders(),
        };
        let handed_out = self.reader.read(&plan, &read, self.token, false).handed_out;
        for id in &handed_out {
            assert!(!self.in_flight.contains(id), "{id} is handed out once");
            assert!(
                !self.delivered.contains(id) || self.may_repeat.contains(id),
                "{id} was settled and stored, and is repeated"
            );
        }
        self.in_flight.extend(handed_out);
    }

    fn settle(&mut self, which: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let id = self.in_flight.remove(which % self.in_flight.len());
        self.reader.window.settle(id);
        self.delivered.insert(id);
        self.unstored.insert(id);
        self.may_repeat.remove(&id);
    }

    fn put_back(&mut self, which: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let id = self.in_flight.remove(which % self.in_flight.len());
        self.reader.window.put_back(id, None);
    }

    fn checkpoint(&mut self) {
        let state = self.reader.state(Instant::now());
        assert_eq!(state.position(), self.reader.position());
        assert!(state.position() >= self.position, "the cursor never goes back");
        self.position = state.position();
        self.stored = state.to_string();
        self.unstored.clear();
    }

    fn restart(&mut self, clean: bool) {
        if clean {
            self.checkpoint();
        }
        self.may_repeat.append(&mut self.unstored);
        self.in_flight.clear();
        self.token = LeaseToken::new();
        self.reader = LogReader::resume(&parse(&self.stored), Proof::Required);
    }

    fn drain(&mut self, database: &mut Database) {
        for _ in 0..30 {
            self.read(database, 1_000, &[]);
            while !self.in_flight.is_empty() {
                self.settle(0);
            }
        }
        self.checkpoint();
    }
}

fn parse(state: &str) -> ReaderState {
    state.parse().expect("it was written by a reader")
}

fn run(steps: &[Step]) -> (Database, Relay) {
    let (mut database, mut relay) = (Database::default(), Relay::new());
    for step in steps {
        relay.act(&mut database, step);
        let state = parse(&relay.stored);
        let unsettled = state.unsettled();
        let skipped = database
            .committed
            .keys()
            .filter(|id| !unsettled.contains(**id) && !relay.delivered.contains(id));
        assert_eq!(skipped.count(), 0, "what is stored says that all below it is settled");
        let undecided = database.lowest_undecided().unwrap_or(i64::MAX);
        assert!(
            state.position() < undecided,
            "the cursor passed a transaction that is open"
        );
    }
    (database, relay)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Across restarts nothing that was committed is skipped, whatever a reader knew when it died, and nothing
    /// is repeated but what was in flight or was settled since the state was last stored.
    ///
    /// Proves C9 and pitfall 1.
    #[test]
    fn a_successor_skips_nothing_and_repeats_only_what_was_in_flight(steps in prop::collection::vec(step(), 1..120)) {
        let (mut database, mut relay) = run(&steps);
        relay.drain(&mut database);
        let committed: BTreeSet<i64> = database.committed.keys().copied().collect();
        prop_assert_eq!(&relay.delivered, &committed);
        while !database.open.is_empty() {
            database.apply(&Step::Commit(0));
        }
        relay.drain(&mut database);
        prop_assert_eq!(relay.delivered.len(), database.committed.len());
        prop_assert_eq!(relay.reader.gaps().open(), 0, "all gaps are closed");
        prop_assert_eq!(relay.position, relay.reader.gaps().hi());
    }

    /// The oracle waits for the oldest open transaction, and so misses nothing. The reader finds all that it finds, and never
    /// later; and its cursor passes nothing that the oracle still waits for.
    #[test]
    fn the_reader_is_never_behind_an_xmin_watermark_and_never_ahead_of_what_is_decided(
        rounds in prop::collection::vec(prop::collection::vec(step(), 1..25), 1..6),
    ) {
        let (mut database, mut relay) = (Database::default(), Relay::new());
        for steps in rounds {
            for step in &steps {
                relay.act(&mut database, step);
            }
            relay.drain(&mut database);
            let oracle = database.below_watermark();
            prop_assert!(oracle.is_subset(&relay.delivered), "the oracle found what the reader has not");
            let undecided = database.lowest_undecided().unwrap_or(i64::MAX);
            prop_assert!(relay.position < undecided);
            let waiting = database.committed.keys().filter(|id| !relay.delivered.contains(id));
            prop_assert_eq!(waiting.count(), 0, "the reader waits for no transaction");
        }
        while !database.open.is_empty() {
            database.apply(&Step::Commit(0));
        }
        relay.drain(&mut database);
        prop_assert_eq!(&database.below_watermark(), &relay.delivered, "in the end both have found the same");
    }
}

/// That the tests above can fail: a successor that knows the cursor only repeats what was settled beside a gap.
#[test]
#[should_panic(expected = "was settled and stored, and is repeated")]
fn a_successor_that_knows_the_cursor_only_repeats_what_was_settled() {
    let mut database = Database::default();
    for step in [
        Step::Begin,
        Step::Insert(0),
        Step::Begin,
        Step::Insert(1),
        Step::Commit(1),
    ] {
        database.apply(&step);
    }
    let mut relay = Relay::new();
    relay.drain(&mut database);
    assert_eq!((relay.delivered.len(), relay.stored.as_str()), (1, "2;1-1"));
    relay.stored = ReaderState::at(relay.position).to_string();
    relay.restart(false);
    relay.read(&mut database, 9, &[]);
}
