//! The operator's verbs.

use chrono::TimeDelta;
use futures::future::join_all;
use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::{Filter, OutboxStats, StoreErrorKind};
use posthaste_core::{AdminStore, Message, MessageId, RelayStore};

use super::steps::{
    HOUR, MINUTE, SECOND, Worker, enqueue_new, keyed, kill, plain, record, records, retry, settle, state,
};
use crate::backend::Backend;

fn only(ids: &[MessageId]) -> Filter {
    Filter {
        ids: ids.to_vec(),
        ..Filter::default()
    }
}

async fn listed<B: Backend>(b: &B, filter: Filter) -> Vec<MessageId> {
    let rows = b.store().list(&filter, None, 100).await.expect("list works");
    rows.into_iter().map(|row| row.message.id).collect()
}

async fn replay<B: Backend>(b: &B, filter: &Filter) -> Vec<MessageId> {
    b.store().replay(filter, 100).await.expect("replay works")
}

async fn discard<B: Backend>(b: &B, filter: &Filter) -> Vec<MessageId> {
    b.store().discard(filter, 100).await.expect("discard works")
}

/// Kills rows that are all pending and have no key.
async fn kill_all<B: Backend>(b: &B, ids: &[MessageId]) {
    for id in ids {
        kill(b, *id).await;
    }
}

/// Proves B16.
pub async fn every_condition_of_a_filter_must_hold<B: Backend>(b: &B) {
    let ids = enqueue_new(
        b,
        [
            Message::new("a", "0"),
            Message::new("b", "1").key("k"),
            Message::new("b", "2").key("k").tenant("t"),
            Message::new("b", "3").namespace("other").key("k").tenant("t"),
        ],
    )
    .await;
    kill(b, ids[0]).await;
    assert_eq!(listed(b, Filter::default()).await, ids);
    let topic = |topic: &str| Filter {
        topic: Some(topic.into()),
        ..Filter::default()
    };
    assert_eq!(listed(b, topic("b")).await, ids[1..]);
    assert_eq!(listed(b, topic("c")).await, []);
    for (state, expected) in [
        (State::Dead, vec![ids[0]]),
        (State::Pending, ids[1..].to_vec()),
        (State::Processing, vec![]),
        (State::Delivered, vec![]),
    ] {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        assert_eq!(listed(b, filter).await, expected, "{state:?}");
    }
    let narrow = Filter {
        namespace: Some("default".into()),
        state: Some(State::Pending),
        topic: Some("b".into()),
        ordering_key: Some("k".into()),
        tenant: Some("t".into()),
        ids: ids.clone(),
    };
    assert_eq!(listed(b, narrow).await, [ids[2]]);
    assert_eq!(listed(b, only(&ids[1..2])).await, ids[1..2]);
}

/// Proves B16.
pub async fn a_list_goes_on_where_the_last_page_ended<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..25).map(|n| plain(&n.to_string()))).await;
    for (filter, expected) in [(Filter::default(), &ids[..]), (only(&ids[..12]), &ids[..12])] {
        let (mut seen, mut after) = (Vec::new(), None);
        while seen.len() <= ids.len() {
            let page = b.store().list(&filter, after, 10).await.expect("list works");
            assert!(page.len() <= 10);
            let Some(last) = page.last() else { break };
            after = Some(last.message.id);
            seen.extend(page.into_iter().map(|row| row.message.id));
        }
        assert_eq!(seen, expected);
    }
    // An empty page would say that there is no more.
    let gone = b.store().list(&Filter::default(), Some(MessageId::new()), 10).await;
    assert!(
        gone.expect_err("nothing follows a row that is gone")
            .to_string()
            .contains("is gone")
    );
}

/// Proves B16.
pub async fn an_unknown_id_shows_nothing<B: Backend>(b: &B) {
    // Its first digits may be the number of a row.
    enqueue_new(b, (0..20).map(|n| plain(&n.to_string()))).await;
    assert_eq!(b.store().show(MessageId::new()).await.expect("show works"), None);
}

/// Proves B16.
pub async fn the_counts_are_those_of_the_namespace<B: Backend>(b: &B) {
    assert_eq!(
        b.store().stats("default").await.expect("stats work"),
        OutboxStats::default()
    );
    let ids = enqueue_new(b, (0..7).map(|n| plain(&n.to_string()))).await;
    enqueue_new(b, [plain("x").namespace("other")]).await;
    b.pass_time(MINUTE * 2).await;
    let work = Worker::new().claim(b, 5).await;
    let verdicts = [
        Verdict::Delivered,
        Verdict::Dead {
            error: "refused".into(),
        },
        retry(HOUR),
        retry(SECOND),
    ];
    let settlements = ids.iter().zip(verdicts).map(|(id, verdict)| work.verdict(*id, verdict));
    assert_eq!(settle(b, settlements.collect()).await, []);
    b.pass_time(SECOND * 5).await;

    let stats = b.store().stats("default").await.expect("stats work");
    assert_eq!((stats.pending, stats.waiting), (4, 1), "{stats:?}");
    assert_eq!((stats.processing, stats.dead), (1, 1), "{stats:?}");
    assert!((125.0..185.0).contains(&stats.oldest_seconds), "{stats:?}");
    let other = b.store().stats("other").await.expect("stats work");
    assert_eq!((other.pending, other.processing, other.dead), (1, 0, 0));
    let none = b.store().stats("nobody's").await.expect("stats work");
    assert_eq!(none, OutboxStats::default());
}

/// Proves B11, B15.
pub async fn a_replayed_row_begins_again_at_its_old_place<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..3).map(|n| keyed("k", &n.to_string()))).await;
    Worker::new().claim(b, 1).await.settle(b, retry(SECOND)).await;
    b.pass_time(MINUTE).await;
    let before = record(b, ids[0]).await;
    kill(b, ids[0]).await;
    assert_eq!(replay(b, &only(&ids[..1])).await, ids[..1]);
    let row = record(b, ids[0]).await;
    assert!(row.next_attempt_at <= row.updated_at, "due at once");
    b.pass_time(SECOND).await;
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Pending, 0));
    assert_eq!(row.sequence, before.sequence);
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert!(
        row.updated_at - row.created_at >= TimeDelta::minutes(1),
        "the replay moved updated_at"
    );
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), ids[..1], "due at once, before its followers");
    assert_eq!(work.messages[0].attempts, 1);
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[1..]);
}

/// Proves B11.
pub async fn only_dead_rows_are_replayed_or_discarded<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..4).map(|n| plain(&n.to_string()))).await;
    let work = Worker::new().claim(b, 3).await;
    let settlements = vec![
        work.verdict(ids[0], Verdict::Delivered),
        work.verdict(ids[1], retry(HOUR)),
    ];
    assert_eq!(settle(b, settlements).await, []);
    let before = records(b).await;
    for filter in [Filter::default(), only(&ids)] {
        assert_eq!(replay(b, &filter).await, []);
        assert_eq!(discard(b, &filter).await, []);
    }
    assert_eq!(records(b).await, before);
}

/// To go on past it would have the later rows of its key delivered before it.
///
/// Proves B7.
pub async fn a_replay_goes_past_no_locked_row<B: Backend>(b: &B) {
    let ids = enqueue_new(b, ["1", "2", "3"].map(plain)).await;
    kill_all(b, &ids).await;
    let mut tx = b.begin().await;
    b.lock_row(&mut tx, ids[0]).await;
    let replayed = tokio::time::timeout(SECOND * 30, b.store().replay(&Filter::default(), 10)).await;
    let error = replayed.expect("it ends").expect_err("the first one is locked");
    assert_eq!(error.kind, StoreErrorKind::Contention, "{error}");
    for id in &ids {
        assert_eq!(state(b, *id).await, State::Dead);
    }
    b.rollback(tx).await;
    assert_eq!(replay(b, &Filter::default()).await.len(), 3);
}

/// Proves B11.
pub async fn dead_rows_are_replayed_by_filter_and_number<B: Backend>(b: &B) {
    let topics = ["a", "b", "a", "a", "b"];
    let ids = enqueue_new(b, topics.map(|topic| Message::new(topic, "x"))).await;
    kill_all(b, &ids).await;
    let filter = Filter {
        topic: Some("a".into()),
        ..Filter::default()
    };
    let first = b.store().replay(&filter, 2).await.expect("replay works");
    assert_eq!(first.len(), 2, "no more than was asked for");
    assert_eq!(
        listed(
            b,
            Filter {
                state: Some(State::Pending),
                ..Filter::default()
            }
        )
        .await,
        [ids[0], ids[2]]
    );
    assert_eq!(replay(b, &filter).await, [ids[3]]);
    assert_eq!(state(b, ids[1]).await, State::Dead);
}

/// Proves B11.
pub async fn a_filter_for_another_state_replays_and_discards_nothing<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    kill_all(b, &ids).await;
    let filter = Filter {
        state: Some(State::Pending),
        ..Filter::default()
    };
    assert_eq!(replay(b, &filter).await, []);
    assert_eq!(discard(b, &filter).await, []);
    assert_eq!(state(b, ids[0]).await, State::Dead);
}

/// Proves B11 and pitfall 22.
pub async fn of_two_operators_who_replay_a_row_one_gets_it<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    for _ in 0..5 {
        kill_all(b, &ids).await;
        let filter = only(&ids);
        let replayed = join_all((0..4).map(|_| replay(b, &filter))).await;
        assert_eq!(replayed.concat(), ids, "one of them, and no other");
        b.pass_time(SECOND).await;
    }
}

/// Proves B11 and pitfall 22.
pub async fn of_a_replay_and_a_discard_one_gets_the_row<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..5).map(|n| plain(&n.to_string()))).await;
    kill_all(b, &ids).await;
    let filter = only(&ids);
    let (replayed, discarded) = tokio::join!(replay(b, &filter), discard(b, &filter));
    let mut touched = [replayed.clone(), discarded.clone()].concat();
    touched.sort();
    let mut expected = ids;
    expected.sort();
    assert_eq!(touched, expected, "each row is replayed or discarded, never both");
    let mut left: Vec<_> = records(b).await.into_iter().map(|row| row.message.id).collect();
    left.sort();
    let mut replayed = replayed;
    replayed.sort();
    assert_eq!(left, replayed);
}

/// Proves B11.
pub async fn a_discarded_row_is_gone<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    kill_all(b, &ids).await;
    assert_eq!(discard(b, &only(&ids[..1])).await, ids[..1]);
    assert_eq!(b.store().show(ids[0]).await.expect("show works"), None);
    assert_eq!(state(b, ids[1]).await, State::Dead);
    let limited = b.store().discard(&Filter::default(), 0).await.expect("discard works");
    assert_eq!(limited, [], "no more than was asked for");
}
