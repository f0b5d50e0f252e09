//! When refused verdicts are tried again, believed and forgotten.

use chrono::Utc;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::publisher::Outcome;
use tokio::time::advance;

use super::memory::MAX_FREE;
use super::*;
use crate::reported::InFlightMessage;
use crate::send_trace::SendTrace;

fn reported(id: MessageId) -> Reported {
    let message = InFlightMessage {
        id,
        event_id: None,
        token: LeaseToken::new(),
        claim: 0,
        place: 0,
        bytes: 1,
        topic: "orders".into(),
        key: None,
        stream: 0,
        destination: None,
        attempts: 1,
        max_attempts: 10,
        version: None,
        created_at: Utc::now(),
        reclaimed: false,
        not_sent: None,
        trace_id: None,
        trace: SendTrace::default(),
        whole: None,
    };
    Reported {
        message,
        outcome: Outcome::DELIVERED,
        verdict: Verdict::Delivered,
        spooled: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_verdict_is_tried_less_and_less_often_but_at_least_once_a_minute() {
    let (refusals, id) = (Refusals::new("default", StoreRequirements::default()), MessageId::new());
    let mut waits = Vec::new();
    for n in 0..9 {
        assert_eq!(refusals.remember(reported(id), Hold::Leased), n == 0, "told once");
        waits.push((refusals.next_retry().unwrap() - Instant::now()).as_secs());
        assert!(refusals.retries(false).is_empty());
        advance(Duration::from_secs(waits[n])).await;
        assert_eq!(refusals.retries(false).len(), 1);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert!(refusals.forget(id) && refusals.next_retry().is_none());
}

/// A lock may be gone in the next moment, and is no reason for alarm unless it lasts.
#[tokio::test(start_paused = true)]
async fn a_verdict_that_waits_for_a_lock_is_tried_soon_and_told_once_if_it_lasts() {
    let (refusals, id) = (Refusals::new("default", StoreRequirements::default()), MessageId::new());
    let (mut waits, mut told) = (Vec::new(), Vec::new());
    for n in 0..7 {
        told.push(refusals.remember(reported(id), Hold::Busy));
        waits.push((refusals.next_retry().unwrap() - Instant::now()).as_millis());
        advance(Duration::from_millis(u64::try_from(waits[n]).unwrap())).await;
        assert_eq!(refusals.retries(false).len(), 1);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    assert_eq!(told, [false, false, false, false, true, false, false]);
    assert_eq!((refusals.busy(), refusals.count()), (1, 0));
    assert!(refusals.recall(id, None, 1).unwrap().due, "it is not published again");
    assert!(refusals.written(id, &Verdict::Delivered), "that is told too");
}

#[tokio::test(start_paused = true)]
async fn of_a_message_that_is_to_be_given_back_nothing_is_known() {
    let (refusals, id) = (Refusals::new("default", StoreRequirements::default()), MessageId::new());
    let released = Reported {
        verdict: Verdict::Released,
        ..reported(id)
    };
    refusals.remember(released, Hold::Busy);
    assert!(!refusals.knows(id) && refusals.recall(id, None, 1).is_none());
    assert_eq!(refusals.retries(true).len(), 1);
    refusals.written(id, &Verdict::Released);
    assert_eq!(refusals.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_free_is_tried_when_it_is_claimed_and_its_time_has_come() {
    let (refusals, id) = (Refusals::new("default", StoreRequirements::default()), MessageId::new());
    refusals.remember(reported(id), Hold::Free);
    assert!(refusals.retries(false).is_empty(), "only a claim brings it back");
    assert!(!refusals.recall(id, None, 1).unwrap().due);
    advance(Duration::from_secs(2)).await;
    assert!(refusals.recall(id, None, 1).unwrap().due);
    assert_eq!(refusals.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_only_refusals_come_back_claims_take_one_message_and_wait() {
    let refusals = Refusals::new("default", StoreRequirements::default());
    assert_eq!(refusals.wait_for_room().await, None);
    let start = Instant::now();
    for wait in [1, 3, 7] {
        refusals.round(0, 5);
        assert_eq!(refusals.wait_for_room().await, Some(1));
        assert_eq!(start.elapsed().as_secs(), wait);
    }
    refusals.round(1, 5);
    assert_eq!(refusals.wait_for_room().await, None, "at once");
}

#[tokio::test(start_paused = true)]
async fn what_is_free_and_not_seen_again_does_not_fill_the_memory() {
    let refusals = Refusals::new("default", StoreRequirements::default());
    let first = MessageId::new();
    refusals.remember(reported(first), Hold::Free);
    for _ in 0..MAX_FREE {
        advance(Duration::from_millis(1)).await;
        refusals.remember(reported(MessageId::new()), Hold::Free);
    }
    assert_eq!(refusals.count(), MAX_FREE);
    assert!(!refusals.knows(first));
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_claim_told_is_not_believed_for_ever() {
    let (refusals, lost, free) = (
        Refusals::new("default", StoreRequirements::default()),
        MessageId::new(),
        MessageId::new(),
    );
    refusals.remember(reported(lost), Hold::Lost);
    refusals.remember(reported(free), Hold::Free);
    advance(FREE_FOR / 2).await;
    refusals.hurry();
    assert!(refusals.recall(free, None, 1).is_some(), "it is seen");
    assert!(refusals.knows(lost) && refusals.recall(lost, None, 1).unwrap().due);
    advance(FREE_FOR / 2).await;
    assert!(!refusals.knows(lost) && refusals.recall(lost, None, 1).is_none());
    assert!(refusals.knows(free), "it would be refused again");
    advance(FREE_FOR / 2).await;
    assert!(refusals.next_retry() <= Some(Instant::now()));
    refusals.retries(false);
    assert_eq!(refusals.count(), 0, "another relay has settled it");
}

/// An operator who changes a row or replays it wants it to be published, and knows nothing of a verdict that was lost.
#[tokio::test(start_paused = true)]
async fn what_a_lost_claim_told_is_not_believed_of_a_row_that_was_changed() {
    let (refusals, id) = (Refusals::new("default", StoreRequirements::default()), MessageId::new());
    let mut lost = reported(id);
    lost.message.version = Some(3);
    refusals.remember(lost.clone(), Hold::Lost);
    assert!(refusals.recall(id, Some(3), 1).unwrap().holds);
    assert!(!refusals.recall(id, Some(4), 1).unwrap().holds);
    refusals.remember(lost, Hold::Free);
    assert!(
        refusals.recall(id, Some(4), 1).unwrap().holds,
        "it is the fixed row that is claimed"
    );
}

/// The message may have been fixed, or replayed.
#[tokio::test(start_paused = true)]
async fn a_death_is_not_believed_of_the_next_claim() {
    let (refusals, leased, free) = (
        Refusals::new("default", StoreRequirements::default()),
        MessageId::new(),
        MessageId::new(),
    );
    let dead = |id| Reported {
        verdict: Verdict::Dead { error: "no".into() },
        ..reported(id)
    };
    refusals.remember(dead(leased), Hold::Leased);
    refusals.remember(dead(free), Hold::Free);
    assert!(!refusals.recall(leased, None, 2).unwrap().holds);
    assert!(
        refusals.recall(free, None, 1).unwrap().holds,
        "it is not tried all the time"
    );
    advance(Duration::from_secs(2)).await;
    assert!(!refusals.recall(free, None, 1).unwrap().holds);
    assert_eq!(refusals.count(), 2, "they are refused all the same");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_believed_of_a_row_that_counts_its_attempts_anew() {
    let (refusals, id) = (Refusals::new("default", StoreRequirements::default()), MessageId::new());
    let mut third = reported(id);
    third.message.attempts = 3;
    refusals.remember(third, Hold::Leased);
    assert!(refusals.recall(id, None, 4).unwrap().holds);
    assert!(!refusals.recall(id, None, 1).unwrap().holds);
}

/// To try each of thousands would keep the database busy with what it refuses.
#[tokio::test(start_paused = true)]
async fn of_many_deaths_whose_letters_are_kept_one_is_tried_for_all() {
    let refusals = Refusals::new("default", StoreRequirements::default());
    let ids: Vec<_> = (0..500).map(|_| MessageId::new()).collect();
    let death = |id| Reported {
        verdict: Verdict::Dead { error: "no".into() },
        ..reported(id)
    };
    for id in &ids {
        refusals.remember(death(*id), Hold::Leased);
    }
    refusals.spooled(ids.iter().copied());
    advance(Duration::from_mins(1)).await;
    let mut tried = Vec::new();
    for _ in 0..5 {
        let groups = refusals.retries(false);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].len(), 1);
        assert!(refusals.retries(false).is_empty(), "the next one is tried later");
        let one = groups[0][0].message.id;
        assert!(!tried.contains(&one), "each time another one");
        tried.push(one);
        refusals.remember(death(one), Hold::Leased);
        let wait = refusals.next_retry().unwrap() - Instant::now();
        assert!(wait > Duration::ZERO && wait <= PROBE_INTERVAL, "{wait:?}");
        advance(wait).await;
    }
    // One was taken: the others are tried together.
    refusals.hurry();
    let groups = refusals.retries(false);
    assert_eq!(groups.iter().map(Vec::len).max(), Some(500));
}
