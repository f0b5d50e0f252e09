//! Properties of the state machine under any sequence of steps.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::{Lease, LeaseToken, RowModel, State, Verdict, decide};
use posthaste_core::publisher::{ErrorKind, ErrorScope, Outcome, PublishError};
use posthaste_core::retry::{Backoff, RetryPolicy};
use proptest::prelude::*;

const MAX: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    Claim,
    ExtendCurrent,
    SettleCurrent(Verdict),
    SettleStale(Verdict),
    Sweep,
    Replay,
    Wait(u64),
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Delivered),
        Just(Verdict::Released),
        Just(Verdict::Dead { error: "no".into() }),
        (0_u64..20).prop_map(|s| Verdict::Retry {
            delay: Duration::from_secs(s),
            error: "again".into()
        }),
        (0_u64..20).prop_map(|s| Verdict::Postponed {
            delay: Duration::from_secs(s),
            error: "away".into()
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Claim),
        1 => Just(Step::ExtendCurrent),
        2 => verdict().prop_map(Step::SettleCurrent),
        2 => verdict().prop_map(Step::SettleStale),
        1 => Just(Step::Sweep),
        1 => Just(Step::Replay),
        4 => (0_u64..40).prop_map(Step::Wait),
    ]
}

fn lease(now: DateTime<Utc>) -> Lease {
    Lease {
        token: LeaseToken::new(),
        until: now + Duration::from_secs(10),
    }
}

proptest! {
    /// Proves B8, B9, B11, B15 and pitfalls 7, 8, 9.
    #[test]
    fn no_sequence_of_steps_breaks_a_row(steps in prop::collection::vec(step(), 0..60)) {
        let mut now = DateTime::<Utc>::UNIX_EPOCH;
        let mut row = RowModel::begin(now, None);
        let mut stale: Vec<LeaseToken> = vec![LeaseToken::new()];
        for step in steps {
            let before = row.clone();
            now += Duration::from_millis(1);
            let result = match &step {
                Step::Wait(seconds) => { now += Duration::from_secs(*seconds); continue }
                Step::Claim => {
                    let result = row.claim(now, lease(now), MAX);
                    if result.is_ok() {
                        stale.extend(before.lease.map(|lease| lease.token));
                        prop_assert!(before.attempts < MAX);
                        prop_assert_eq!(row.attempts, before.attempts + 1);
                    }
                    result
                }
                Step::ExtendCurrent => match before.lease {
                    Some(held) => row.extend(now, Lease { token: held.token, ..lease(now) }),
                    None => row.extend(now, lease(now)),
                },
                Step::SettleCurrent(verdict) => {
                    let token = before.lease.map_or_else(LeaseToken::new, |lease| lease.token);
                    let result = row.settle(now, token, verdict);
                    if result.is_ok() { stale.push(token) }
                    result
                }
                Step::SettleStale(verdict) => {
                    let token = *stale.last().expect("there is one from the start");
                    let result = row.settle(now, token, verdict);
                    prop_assert!(result.is_err(), "a stale token settled {before:?}");
                    result
                }
                Step::Sweep => row.sweep(now, MAX),
                Step::Replay => row.replay(now),
            };
            if result.is_err() {
                prop_assert_eq!(&row, &before, "a refused step changes nothing");
            } else {
                prop_assert_eq!(row.updated_at, now);
            }
            prop_assert_eq!(row.state == State::Processing, row.lease.is_some());
            prop_assert!(row.attempts <= MAX);
            if before.state == State::Delivered { prop_assert_eq!(row.state, State::Delivered) }
            if before.state == State::Dead && row.state != State::Dead {
                prop_assert!(matches!(step, Step::Replay) && row.attempts == 0);
            }
        }
        // Whatever happened, the row is not stranded: with time it can be claimed or swept, or it is settled.
        let later = now + Duration::from_secs(1000);
        prop_assert!(
            row.is_claimable(later, MAX) || row.is_exhausted(later, MAX)
                || matches!(row.state, State::Delivered | State::Dead),
            "stranded: {row:?}"
        );
    }

    /// Proves B10.
    #[test]
    fn failures_end_in_dead_exactly_at_the_limit(attempts in 1_u32..20, max_attempts in 1_u32..20, random in 0.0..=1.0_f64) {
        let policy = RetryPolicy { max_attempts, backoff: Backoff::default() };
        let failed = Outcome::Failed(PublishError::transient("broker down"));
        match decide(failed, attempts, &policy, None, random) {
            Verdict::Dead { error } => { prop_assert!(attempts >= max_attempts); prop_assert!(error.contains("broker down")) }
            Verdict::Retry { delay, error } => {
                prop_assert!(attempts < max_attempts);
                prop_assert_eq!(error, "broker down");
                prop_assert_eq!(delay, policy.backoff.delay(attempts, random));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn the_kind_of_error_decides() {
    let policy = RetryPolicy::default();
    let failed = |kind| Outcome::Failed(PublishError::new(kind, ErrorScope::Message, "m"));
    let throttled = ErrorKind::Throttled {
        retry_after: Duration::from_mins(15),
    };
    assert_eq!(
        decide(failed(ErrorKind::Permanent), 1, &policy, None, 0.0),
        Verdict::Dead { error: "m".into() }
    );
    assert!(matches!(
        decide(failed(ErrorKind::Unknown), 1, &policy, None, 0.0),
        Verdict::Retry { .. }
    ));
    assert!(
        matches!(decide(failed(throttled), 10, &policy, None, 0.0), Verdict::Postponed { delay, .. } if delay.as_secs() == 900),
        "it costs no attempt, so that nothing dies of it"
    );
    let epoch = ErrorKind::Throttled {
        retry_after: Duration::MAX,
    };
    assert!(
        matches!(decide(failed(epoch), 1, &policy, None, 0.0), Verdict::Postponed { delay, .. } if delay.as_secs() == 3600)
    );
    assert_eq!(decide(Outcome::NotAttempted, 10, &policy, None, 0.0), Verdict::Released);
    let least_wait = Some(Duration::from_secs(45));
    let postponed = Verdict::Postponed {
        delay: Duration::from_secs(45),
        error: "m".into(),
    };
    assert_eq!(
        decide(failed(ErrorKind::Transport), 1, &policy, least_wait, 0.0),
        postponed
    );
    assert!(matches!(
        decide(failed(ErrorKind::Transport), 10, &policy, least_wait, 0.0),
        Verdict::Postponed { .. }
    ));
    assert!(matches!(
        decide(failed(ErrorKind::Transport), 10, &policy, None, 0.0),
        Verdict::Dead { .. }
    ));
    assert!(matches!(
        decide(failed(ErrorKind::Transient), 1, &policy, least_wait, 0.0),
        Verdict::Retry { .. }
    ));
    assert!(matches!(
        decide(Outcome::Corrupt { error: "h".into() }, 1, &policy, None, 0.0),
        Verdict::Dead { .. }
    ));
}
