//! What verdicts write into rows agrees with the model of a row's life, for every way of claiming and counting.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::{Lease, LeaseToken, RowModel, State, Verdict};
use posthaste_sql::row_change::StatusLabel;
use posthaste_sql::table::{Counts, Strategy as Claiming, Table};
use posthaste_sql::{RowChange, TableMap};
use proptest::prelude::*;

/// More than any test makes.
const MAX_ATTEMPTS: u32 = 1_000;

/// What the columns of one row hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    status: State,
    /// Rows between two attempts may have a label of their own.
    waiting: bool,
    attempts: i64,
    created_at: DateTime<Utc>,
    next_attempt_at: DateTime<Utc>,
    last_error: Option<String>,
    delivered: bool,
    dead_letters: u32,
}

impl Columns {
    fn enqueued(now: DateTime<Utc>) -> Self {
        Self {
            status: State::Pending,
            waiting: false,
            attempts: 0,
            created_at: now,
            next_attempt_at: now,
            last_error: None,
            delivered: false,
            dead_letters: 0,
        }
    }

    /// A lease is written and counts; a lock leaves no trace.
    fn claim(&mut self, map: &TableMap) {
        if map.strategy() == Claiming::Leased {
            self.status = State::Processing;
            self.attempts += 1;
        }
    }

    /// As the statements of stores do.
    fn apply(&mut self, change: &RowChange, now: DateTime<Utc>) {
        if let Some(label) = change.status {
            self.waiting = label == StatusLabel::Waiting;
            self.status = match label {
                StatusLabel::Pending | StatusLabel::Waiting => State::Pending,
                StatusLabel::Delivered => State::Delivered,
                StatusLabel::Dead => State::Dead,
            };
        }
        self.attempts += i64::from(change.attempts);
        if let Some(delay) = change.delay {
            let earliest = self.created_at + Duration::from_micros(1);
            self.next_attempt_at = (now + delay).max(earliest);
        }
        if let Some(error) = &change.error {
            self.last_error = Some(error.clone());
        }
        self.delivered = change.delivered;
        self.dead_letters += u32::from(change.dead_letter);
    }

    /// As statements do that find rows of workers which crashed.
    fn recover(&mut self, exhausted: bool, map: &TableMap) {
        self.status = State::Pending;
        self.waiting = false;
        if exhausted {
            let change = RowChange::exhausted(map);
            let earlier = self.last_error.clone();
            self.apply(&change, self.next_attempt_at);
            self.last_error = earlier.or(change.error);
        }
    }

    fn replay(&mut self, now: DateTime<Utc>) {
        self.status = State::Pending;
        self.waiting = false;
        self.attempts = 0;
        self.next_attempt_at = now.max(self.created_at + Duration::from_micros(1));
    }
}

/// What the column of attempts holds for a row that nobody has claimed.
fn counted(model: &RowModel, counts: Counts) -> i64 {
    let ended = matches!(model.state, State::Delivered | State::Dead);
    match counts {
        Counts::Attempts => i64::from(model.attempts),
        Counts::Retries => i64::from(model.attempts) - i64::from(ended),
    }
}

fn map(claiming: Claiming, counts: Counts, dead_letters: bool) -> TableMap {
    let (columns, states) = match claiming {
        Claiming::Leased => (
            "lease_token = \"token\"\nlocked_until = \"until\"",
            "processing = \"taken\"",
        ),
        _ => ("", ""),
    };
    let counts = match counts {
        Counts::Attempts => "attempts",
        Counts::Retries => "retries",
    };
    let (table, letter) = if dead_letters {
        ("dead_letter = \"letters\"", "[dead_letter.columns]\nid = \"id\"")
    } else {
        ("", "")
    };
    let text = format!(
        r#"
name = "t"
order = ["id"]
topic = {{ fixed = "t" }}
[tables]
outbox = "t"
{table}
[columns]
id = "id"
payload = "payload"
status = "status"
attempts = {{ column = "attempts", counts = "{counts}" }}
next_attempt_at = "due"
last_error = {{ column = "error", max = 8 }}
delivered_at = "sent"
{columns}
[states]
pending = "new"
waiting = "again"
{states}
delivered = "done"
dead = "failed"
{letter}
"#
    );
    let map = TableMap::from_toml(&text).unwrap();
    assert_eq!(map.strategy(), claiming);
    map
}

fn any_map() -> impl Strategy<Value = TableMap> {
    let claiming = prop_oneof![Just(Claiming::Leased), Just(Claiming::RowLocks)];
    let counts = prop_oneof![Just(Counts::Attempts), Just(Counts::Retries)];
    (claiming, counts, any::<bool>()).prop_map(|(claiming, counts, letters)| map(claiming, counts, letters))
}

/// How a claim ends.
#[derive(Clone, Debug)]
enum End {
    Verdict(Verdict),
    /// The worker crashed; whether that was the last attempt.
    Vanished {
        exhausted: bool,
    },
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        8 => verdict().prop_map(End::Verdict),
        1 => any::<bool>().prop_map(|exhausted| End::Vanished { exhausted }),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let error = || prop_oneof![Just("no"), Just("longer than the column"), Just("n\0l")].prop_map(str::to_owned);
    let delay = || (0_u64..20).prop_map(Duration::from_secs);
    prop_oneof![
        1 => Just(Verdict::Delivered),
        2 => Just(Verdict::Released),
        1 => error().prop_map(|error| Verdict::Dead { error }),
        4 => (delay(), error()).prop_map(|(delay, error)| Verdict::Retry { delay, error }),
        4 => (delay(), error()).prop_map(|(delay, error)| Verdict::Postponed { delay, error }),
    ]
}

proptest! {
    /// Proves B8, B10, E4 and pitfalls 8, 9.
    #[test]
    fn what_is_written_is_what_the_model_says(map in any_map(), ends in prop::collection::vec(end(), 1..20)) {
        let mut now = DateTime::<Utc>::UNIX_EPOCH;
        let mut model = RowModel::begin(now, None);
        let mut row = Columns::enqueued(now);
        let mut deaths = 0;
        for end in ends {
            now += Duration::from_mins(1);
            if model.state == State::Dead {
                model.replay(now).unwrap();
                row.replay(now);
            }
            let lease = Lease { token: LeaseToken::new(), until: now + Duration::from_secs(30) };
            if model.claim(now, lease, MAX_ATTEMPTS).is_err() {
                prop_assert_eq!(model.state, State::Delivered);
                break;
            }
            let before = row.clone();
            row.claim(&map);
            now += Duration::from_secs(1);
            match &end {
                End::Verdict(verdict) => {
                    model.settle(now, lease.token, verdict).unwrap();
                    row.apply(&RowChange::of(verdict, &map), now);
                }
                // With the worker's connection its locks are gone, and nothing was written.
                End::Vanished { .. } if map.strategy() == Claiming::RowLocks => {
                    model.settle(now, lease.token, &Verdict::Released).unwrap();
                }
                End::Vanished { exhausted } => {
                    model.recover(now, if *exhausted { model.attempts } else { MAX_ATTEMPTS }).unwrap();
                    row.recover(*exhausted, &map);
                }
            }
            deaths += u32::from(model.state == State::Dead);

            prop_assert_eq!(row.status, model.state);
            prop_assert_eq!(row.attempts, counted(&model, map.counts()), "{:?}", end);
            prop_assert_eq!(row.next_attempt_at, model.next_attempt_at);
            prop_assert_eq!(&row.last_error, &model.last_error.as_ref().map(|error| map.error_text(error)));
            prop_assert_eq!(row.delivered, model.state == State::Delivered);
            prop_assert_eq!(row.dead_letters, if map.has(Table::DeadLetter) { deaths } else { 0 });
            match end {
                End::Verdict(Verdict::Retry { .. } | Verdict::Postponed { .. }) => prop_assert!(row.waiting),
                End::Verdict(Verdict::Released) | End::Vanished { .. } if map.strategy() == Claiming::RowLocks => {
                    prop_assert_eq!(&row, &before);
                }
                _ => prop_assert!(!row.waiting),
            }
        }
    }
}
