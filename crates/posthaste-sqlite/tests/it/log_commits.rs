//! Commits that fail, and those for whose end the caller does not wait.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::store::{ExtendRequest, SchemaStore};
use posthaste_core::{MessageId, RelayStore};
use posthaste_sqlite::SqliteLogStore;
use sqlx::SqlitePool;
use tokio::sync::Notify;

use crate::log::{LEASE, all, another, claim, enqueue, execute, fresh, keyed, let_lease_run_out, request, settle};
use crate::support;

/// How long a caller waits.
const LIMIT: Duration = Duration::from_millis(100);

/// How long a commit takes whose caller goes at its beginning.
const STALL: Duration = Duration::from_secs(1);

/// For each row of the log it looks at all pairs of rows.
const SLOW: &str = "
    create trigger slow before update of hi on posthaste_log_reader begin
        select count(*) from posthaste_log a, posthaste_log b, posthaste_log c where a.topic || b.topic || c.topic = 'x';
    end";

/// Rows with which that takes longer than a caller waits.
const MANY: usize = 130;

fn dead() -> Verdict {
    Verdict::Dead { error: "no".to_owned() }
}

async fn settle_in_vain(store: &SqliteLogStore, settlements: &[Settlement]) {
    let settled = tokio::time::timeout(LIMIT, store.settle(settlements)).await;
    assert!(settled.is_err(), "the caller waits no longer");
}

/// A reader with many rows, of which it has one.
async fn with_one_in_flight() -> (SqliteLogStore, tempfile::TempDir, Vec<MessageId>, Vec<Settlement>) {
    let (store, directory) = fresh().await;
    let ids = enqueue(&store, (0..MANY).map(|n| keyed(&n.to_string()))).await;
    let work = request(1);
    assert_eq!(claim(&store, &work).await, ids[..1]);
    let settlements = all(&work, &[(ids[0], dead())]);
    (store, directory, ids, settlements)
}

/// As a relay goes after a while.
#[tokio::test]
async fn a_verdict_whose_caller_went_while_it_was_written_is_written_with_the_next_call() {
    let (store, _directory, ids, settlements) = with_one_in_flight().await;
    execute(&store, SLOW).await;
    settle_in_vain(&store, &settlements).await;
    execute(&store, "drop trigger slow").await;
    assert_eq!(claim(&store, &request(10)).await, ids[1..11]);
    assert_eq!(store.stats("default").await.unwrap().dead, 1);
}

/// Nobody would send it again.
#[tokio::test]
async fn a_verdict_whose_caller_went_is_remembered_though_it_is_refused() {
    let (store, _directory, ids, settlements) = with_one_in_flight().await;
    execute(&store, SLOW).await;
    settle_in_vain(&store, &settlements).await;
    execute(&store, "drop trigger slow").await;
    execute(
        &store,
        "create trigger no before insert on posthaste_log_failed begin select raise(abort, 'audit: no'); end",
    )
    .await;
    assert_eq!(claim(&store, &request(10)).await, ids[1..11]);
    store.pass_time(Duration::from_secs(3));
    assert_eq!(claim(&store, &request(10)).await, ids[11..21]);
    execute(&store, "drop trigger no").await;
    store.pass_time(Duration::from_secs(10));
    assert_eq!(claim(&store, &request(10)).await, ids[21..31]);
    assert_eq!(store.stats("default").await.unwrap().dead, 1);
}

/// Holds up the next commit of the only connection; says when it has begun.
async fn stall_a_commit(pool: &SqlitePool) -> Arc<Notify> {
    let begun = Arc::new(Notify::new());
    let mut stalled = Some(Arc::clone(&begun));
    let mut connection = pool.acquire().await.unwrap();
    let mut handle = connection.lock_handle().await.unwrap();
    handle.set_commit_hook(move || {
        if let Some(begun) = stalled.take() {
            begun.notify_one();
            std::thread::sleep(STALL);
        }
        true
    });
    begun
}

/// A caller that goes when the commit has begun.
async fn leave_at<T>(commit: &Notify, call: impl Future<Output = T>) {
    tokio::select! {
        _ = call => panic!("the commit is held up"),
        () = commit.notified() => {}
    }
}

/// They are written again, because nobody knows that they are there.
#[tokio::test]
async fn verdicts_that_were_committed_when_their_caller_was_gone_count_once() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    let failed = |delay| Verdict::Retry {
        delay,
        error: "no".to_owned(),
    };
    let retried = enqueue(&store, ["again", "good"].map(keyed)).await;
    let first = request(10);
    assert_eq!(claim(&store, &first).await, retried);
    assert_eq!(settle(&store, &first, &retried, &failed(Duration::ZERO)).await, []);
    let fresh = enqueue(&store, ["dead", "fails"].map(keyed)).await;
    let (second, third) = (request(10), request(10));
    assert_eq!(claim(&store, &second).await, retried);
    assert_eq!(claim(&store, &third).await, fresh);
    let later = Duration::from_hours(1);
    let settlements = [
        all(
            &second,
            &[(retried[0], failed(later)), (retried[1], Verdict::Delivered)],
        ),
        all(&third, &[(fresh[0], dead()), (fresh[1], failed(later))]),
    ]
    .concat();
    let commit = stall_a_commit(&pool).await;
    leave_at(&commit, store.settle(&settlements)).await;
    let kept = async || -> Vec<(String, i64, bool)> {
        sqlx::query_as("select id, attempts, died_at is not null from posthaste_log_failed order by log_id")
            .fetch_all(&pool)
            .await
            .unwrap()
    };
    let expected = [(retried[0], 2, false), (fresh[0], 1, true), (fresh[1], 1, false)];
    let expected = expected.map(|(id, attempts, is_dead)| (id.to_string(), attempts, is_dead));
    assert_eq!(kept().await, expected, "the commit was through");
    assert_eq!(claim(&store, &request(10)).await, []);
    assert_eq!(kept().await, expected);
    let left = store.stats("default").await.unwrap();
    assert_eq!((left.waiting, left.processing, left.dead), (2, 0, 1), "{left:?}");
}

/// It said that it ends, and goes on. What is in flight then may kill it.
#[tokio::test]
async fn who_goes_on_after_an_end_that_was_cut_short_writes_down_what_it_hands_out() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    let first = enqueue(&store, [keyed("a")]).await;
    assert_eq!(claim(&store, &request(10)).await, first);
    store.pass_time(Duration::from_secs(1));
    assert_eq!(claim(&store, &request(10)).await, []);
    let handed_out = async || -> String {
        let handed_out = sqlx::query_scalar("select handed_out from posthaste_log_reader");
        handed_out.fetch_one(&pool).await.unwrap()
    };
    let commit = stall_a_commit(&pool).await;
    leave_at(&commit, store.close()).await;
    assert_eq!(handed_out().await, ";", "the commit was through");
    let second = enqueue(&store, [keyed("b")]).await;
    assert_eq!(claim(&store, &request(10)).await, second);
    assert_ne!(handed_out().await, ";");
}

/// Everything is taken, and then the commit fails, as where the disk is full.
async fn let_commits_fail(store: &SqliteLogStore, trigger: &'static str) {
    execute(store, "create table parent (id integer primary key)").await;
    execute(
        store,
        "create table child (parent references parent deferrable initially deferred)",
    )
    .await;
    execute(store, trigger).await;
}

#[tokio::test]
async fn nothing_is_handed_out_while_what_is_known_cannot_be_committed() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..30).map(|n| keyed(&n.to_string()))).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids[..10]);
    assert_eq!(settle(&store, &work, &ids[..10], &Verdict::Delivered).await, []);
    let_commits_fail(
        &store,
        "create trigger late after update of hi on posthaste_log_reader begin insert into child values (1); end",
    )
    .await;
    store.pass_time(Duration::from_secs(1));
    for n in 0..3 {
        let claimed = store.claim(&request(10)).await;
        assert!(claimed.is_err(), "claim {n}: {claimed:?}");
    }
    execute(&store, "drop trigger late").await;
    assert_eq!(claim(&store, &request(10)).await, ids[10..20]);
}

#[tokio::test]
async fn a_lease_that_cannot_be_committed_is_not_held() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, [keyed("a")]).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    let_commits_fail(
        &store,
        "create trigger late after update of leased_until on posthaste_log_reader when new.leased_until > 0
        begin insert into child values (1); end",
    )
    .await;
    let extended = store.extend(ExtendRequest::new(work.token, &ids, LEASE)).await;
    assert!(extended.is_err(), "{extended:?}");
    let_lease_run_out(store.pool()).await;
    let successor = another(store.pool());
    let claimed = successor.claim(&request(10)).await;
    assert!(claimed.is_err(), "{claimed:?}");
    execute(&store, "drop trigger late").await;
    assert_eq!(claim(&successor, &request(10)).await, ids);
}
