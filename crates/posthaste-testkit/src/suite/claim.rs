//! Handing out rows under a lease.

use chrono::TimeDelta;
use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::reclaim::reclaim_limit;
use posthaste_core::store::Scope;
use posthaste_core::{Message, RelayStore};

use super::steps::{
    ALMOST_LEASE, HOUR, LEASE, LEASE_AND_MORE, MINUTE, SECOND, Worker, enqueue_new, keyed, plain, record, records,
    retry, state,
};
use crate::backend::Backend;

/// Proves B6 and pitfall 13.
pub async fn rows_come_by_sequence<B: Backend>(b: &B) {
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.extend(enqueue_new(b, [plain(&n.to_string()), keyed("k", "x")]).await);
    }
    assert_eq!(Worker::new().claim(b, 40).await.ids(), ids[..40]);
    assert_eq!(Worker::new().unordered().claim(b, 40).await.ids(), ids[40..]);
}

/// Proves B6.
pub async fn no_more_than_the_limit_is_taken<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..5).map(|n| plain(&n.to_string()))).await;
    let worker = Worker::new();
    assert_eq!(worker.claim(b, 3).await.ids(), ids[..3]);
    assert_eq!(worker.claim(b, 3).await.ids(), ids[3..]);
    assert_eq!(worker.claim(b, 3).await.ids(), []);
}

/// Proves B6.
pub async fn an_empty_outbox_gives_nothing<B: Backend>(b: &B) {
    let work = Worker::new().claim(b, 10).await;
    assert_eq!((work.ids(), work.died), (vec![], vec![]));
}

/// Proves B6.
pub async fn no_more_than_the_bytes_are_taken_but_always_one_row<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..4).map(|_| plain(&"x".repeat(60)))).await;
    for worker in [Worker::new(), Worker::new().unordered()] {
        let worker = worker.max_bytes(120);
        let work = worker.claim(b, 10).await;
        assert_eq!(work.ids(), ids[..2], "two rows fit exactly");
        work.settle(b, Verdict::Released).await;
        let work = worker.clone().max_bytes(119).claim(b, 10).await;
        assert_eq!(work.ids(), ids[..1], "a second row would not fit");
        work.settle(b, Verdict::Released).await;
        let work = worker.max_bytes(1).claim(b, 10).await;
        assert_eq!(work.ids(), ids[..1], "one row is always taken");
        work.settle(b, Verdict::Released).await;
    }
}

/// Whatever else the column holds.
///
/// Proves B6.
pub async fn a_row_says_which_worker_has_it<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let worker = Worker::new();
    worker.claim(b, 10).await;
    assert_eq!(
        record(b, ids[0]).await.locked_by,
        Some(worker.id().as_uuid().to_string())
    );
}

/// Proves B7.
pub async fn a_reclaimed_row_says_which_worker_has_it_now<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    let worker = Worker::new();
    assert_eq!(worker.claim(b, 10).await.ids(), ids);
    assert_eq!(
        record(b, ids[0]).await.locked_by,
        Some(worker.id().as_uuid().to_string())
    );
}

/// Proves B6, B15.
pub async fn a_claim_leases_the_row_and_counts_the_attempt<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    b.pass_time(MINUTE).await;
    let worker = Worker::new();
    let work = worker.claim(b, 10).await;
    assert_eq!(work.messages[0].attempts, 1);
    assert!(!work.reclaimed);

    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Processing, 1));
    assert!(row.locked_by.is_some(), "it says that somebody has it");
    assert_eq!(row.locked_until, Some(row.updated_at + LEASE), "leased from now on");
    assert!(
        row.updated_at - row.created_at >= TimeDelta::minutes(1),
        "the claim moved updated_at"
    );
    assert_eq!(work.messages[0].created_at, row.created_at);
}

/// Proves B6, B14.
pub async fn a_leased_row_is_not_claimed_again<B: Backend>(b: &B) {
    enqueue_new(b, [plain("1"), keyed("k", "2")]).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids().len(), 2);
    b.pass_time(ALMOST_LEASE).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
    assert_eq!(Worker::new().unordered().claim(b, 10).await.ids(), []);
}

/// Proves A10, B7 and pitfall 10.
pub async fn an_expired_lease_is_reclaimed<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let first = Worker::new().claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;

    let worker = Worker::new();
    let second = worker.claim(b, 10).await;
    assert_eq!(second.ids(), ids);
    assert!(second.reclaimed);
    assert_eq!(second.messages[0].attempts, 2, "the lost attempt counts");
    let row = record(b, ids[0]).await;
    assert_eq!(row.state, State::Processing);
    assert!(row.locked_by.is_some(), "it says that somebody has it");
    assert_eq!(
        first.settle(b, Verdict::Delivered).await,
        ids,
        "the first lease is lost"
    );
    second.deliver(b).await;
}

/// Proves B7.
pub async fn an_expired_lease_is_reclaimed_without_order_too<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2"), plain("3")]).await;
    Worker::new().unordered().claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    let work = Worker::new().unordered().claim(b, 1_000).await;
    assert_eq!(work.ids(), ids);
    assert!(work.reclaimed);
}

/// Proves pitfall 33.
pub async fn reclaimed_rows_are_never_mixed_with_others<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        let left = enqueue_new(b, [plain("1"), plain("2")]).await;
        worker.claim(b, 10).await;
        b.pass_time(LEASE_AND_MORE).await;
        let fresh = enqueue_new(b, [plain("3"), plain("4")]).await;

        let mut seen = Vec::new();
        for _ in 0..4 {
            let work = worker.claim(b, 1_000).await;
            let mixed = work.ids().iter().any(|id| left.contains(id)) && work.ids().iter().any(|id| fresh.contains(id));
            assert!(!mixed, "{:?}", work.ids());
            assert_eq!(work.reclaimed, work.ids().iter().any(|id| left.contains(id)));
            seen.extend(work.ids());
            work.deliver(b).await;
        }
        assert_eq!(
            seen,
            [left, fresh].concat(),
            "each is handed out once, the oldest first"
        );
    }
}

/// Proves pitfall 33.
pub async fn fewer_rows_are_risked_each_time_a_worker_vanishes<B: Backend>(b: &B) {
    let total = 30;
    enqueue_new(b, (0..total).map(|n| plain(&n.to_string()))).await;
    let worker = Worker::new().max_attempts(4);
    assert_eq!(worker.claim(b, total).await.ids().len(), total as usize);

    b.pass_time(LEASE_AND_MORE).await;
    let second = worker.claim(b, total).await;
    assert_eq!(second.ids().len(), reclaim_limit(1, 4, total) as usize);
    b.pass_time(LEASE_AND_MORE).await;
    let third = worker.claim(b, total).await;
    assert_eq!(
        third.ids().len(),
        reclaim_limit(2, 4, total) as usize,
        "the most-tried row decides"
    );
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(
        worker.claim(b, total).await.ids().len(),
        1,
        "alone before the last attempt"
    );
}

/// Proves B8 and pitfall 33.
pub async fn a_poison_message_dies_and_takes_no_neighbour_along<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..20).map(|n| plain(&n.to_string()))).await;
    let poison = ids[7];
    let worker = Worker::new().max_attempts(4);
    for _ in 0..200 {
        let work = worker.claim(b, 20).await;
        if work.ids().is_empty() && state(b, poison).await == State::Dead {
            break;
        }
        if work.ids().contains(&poison) {
            b.pass_time(LEASE_AND_MORE).await; // the process died with all it had
        } else {
            work.deliver(b).await;
        }
    }
    for row in records(b).await {
        let expected = if row.message.id == poison {
            State::Dead
        } else {
            State::Delivered
        };
        assert_eq!(row.state, expected, "{row:?}");
    }
}

/// Proves B8 and pitfalls 8, 9.
pub async fn a_crash_on_the_last_attempt_ends_dead_through_the_claim<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        let worker = worker.max_attempts(2);
        let ids = enqueue_new(b, [keyed("k", "1")]).await;
        for attempt in 1..=2 {
            let work = worker.claim(b, 10).await;
            assert_eq!((work.ids(), work.messages[0].attempts), (ids.clone(), attempt));
            b.pass_time(LEASE_AND_MORE).await;
        }
        let work = worker.claim(b, 10).await;
        assert_eq!(work.ids(), []);
        assert_eq!(work.died, ids, "the claim says what died");
        let row = record(b, ids[0]).await;
        assert_eq!((row.state, row.attempts), (State::Dead, 2));
        assert_eq!((row.locked_by, row.locked_until), (None, None));
        assert!(row.last_error.is_some(), "an operator must see why");
        assert_eq!(worker.claim(b, 10).await.died, [], "it dies once");
    }
}

/// Proves B6, B8.
pub async fn a_row_without_attempts_left_is_not_claimed<B: Backend>(b: &B) {
    enqueue_new(b, [plain("1")]).await;
    for _ in 0..3 {
        Worker::new().claim(b, 10).await.settle(b, retry(SECOND)).await;
        b.pass_time(MINUTE).await;
    }
    let lowered = Worker::new().max_attempts(3);
    assert_eq!(lowered.claim(b, 10).await.ids(), []);
    assert_eq!(lowered.unordered().claim(b, 10).await.ids(), []);
}

/// Proves B6, B10.
pub async fn a_retry_is_not_claimed_before_its_time<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        let ids = enqueue_new(b, [plain("1")]).await;
        worker.claim(b, 10).await.settle(b, retry(HOUR)).await;
        assert_eq!(worker.claim(b, 10).await.ids(), []);
        b.pass_time(MINUTE * 59).await;
        assert_eq!(worker.claim(b, 10).await.ids(), []);
        b.pass_time(MINUTE * 2).await;
        let work = worker.claim(b, 10).await;
        assert_eq!((work.ids(), work.messages[0].attempts), (ids, 2));
        work.deliver(b).await;
    }
}

/// Proves B17.
pub async fn a_relay_serves_only_its_namespace<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1").namespace("a"), plain("2").namespace("b"), plain("3")]).await;
    for (namespace, id) in [("a", ids[0]), ("b", ids[1]), ("default", ids[2])] {
        let scope = Scope {
            namespace: namespace.into(),
            ..Scope::default()
        };
        let work = Worker::new().scope(scope).claim(b, 10).await;
        assert_eq!(work.ids(), [id], "namespace {namespace}");
    }
}

/// Databases compare texts in many ways, some without regard to spaces at their ends. Nothing is delivered for another
/// namespace, topic or tenant because of that.
///
/// Proves B17.
pub async fn names_that_differ_in_spaces_or_case_are_different<B: Backend>(b: &B) {
    let names = ["a", "a ", "A", "ä"];
    let namespaces = enqueue_new(b, names.map(|name| plain("n").namespace(name))).await;
    let topics = enqueue_new(b, names.map(|name| Message::new(name, "t"))).await;
    let tenants = enqueue_new(b, names.map(|name| plain("u").tenant(name).namespace("tenants"))).await;
    for (place, name) in names.into_iter().enumerate() {
        let of_namespace = Scope {
            namespace: name.into(),
            ..Scope::default()
        };
        let of_topic = Scope {
            topics: vec![name.into()],
            ..Scope::default()
        };
        let of_tenant = Scope {
            namespace: "tenants".into(),
            tenant: Some(name.into()),
            ..Scope::default()
        };
        for (scope, id) in [
            (of_namespace, namespaces[place]),
            (of_topic, topics[place]),
            (of_tenant, tenants[place]),
        ] {
            let work = Worker::new().scope(scope.clone()).claim(b, 10).await;
            assert_eq!(work.ids(), [id], "{scope:?}");
        }
    }
}

/// Proves B17.
pub async fn a_relay_may_be_limited_to_topics<B: Backend>(b: &B) {
    let ids = enqueue_new(b, ["a", "b", "c", "a"].map(|topic| Message::new(topic, "x").key("k"))).await;
    let scope = Scope {
        topics: vec!["a".into(), "c".into()],
        ..Scope::default()
    };
    for worker in [Worker::new(), Worker::new().unordered()] {
        let work = worker.scope(scope.clone()).claim(b, 10).await;
        assert_eq!(work.ids(), [ids[0], ids[2], ids[3]]);
        work.settle(b, Verdict::Released).await;
    }
    assert_eq!(state(b, ids[1]).await, State::Pending);
}

/// Proves B17.
pub async fn a_relay_may_be_limited_to_a_tenant<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1").tenant("a"), plain("2").tenant("b"), plain("3")]).await;
    let scope = Scope {
        tenant: Some("b".into()),
        ..Scope::default()
    };
    for worker in [Worker::new(), Worker::new().unordered()] {
        let work = worker.scope(scope.clone()).claim(b, 10).await;
        assert_eq!(work.ids(), [ids[1]]);
        work.settle(b, Verdict::Released).await;
    }
    assert_eq!(
        Worker::new().claim(b, 10).await.ids(),
        ids,
        "without a tenant all are served"
    );
}

/// Proves B8, B17.
pub async fn what_a_relay_does_not_serve_it_does_not_reclaim<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1").tenant("a"), plain("2").tenant("b")]).await;
    let worker = Worker::new().max_attempts(1);
    worker.claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    let scope = Scope {
        tenant: Some("b".into()),
        ..Scope::default()
    };
    assert_eq!(worker.scope(scope).claim(b, 10).await.died, [ids[1]]);
    assert_eq!(state(b, ids[0]).await, State::Processing);
}

/// Proves B7.
pub async fn the_store_says_that_all_is_well<B: Backend>(b: &B) {
    b.store().check().await.expect("tables and rights are there");
}
