//! The lock is the lease: how long it holds, who ends it, and what it costs.

use std::time::Duration;

use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::store::{Claim, ClaimRequest, ExtendRequest};
use posthaste_core::{Message, MessageId, RelayStore};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BuiltinMap, Role, Table};
use posthaste_testkit::RecordingPublisher;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;

use super::place::{Place, claim, elsewhere, eventually, ids, request, unordered};

const KEYS: [&str; 2] = [
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890a5d-ac96-774b-bcce-b302099a8058",
];

fn shipment(key: &str, n: u32) -> Message {
    Message::new("shipment-events", format!("{{\"n\": {n}}}"))
        .aggregate("Shipment", key)
        .event_type("Moved")
}

async fn place(connections: u32, messages: u32) -> (Place, Vec<MessageId>) {
    let place = Place::builtin("logistics", connections).await;
    let messages: Vec<_> = (0..messages).map(|n| shipment(KEYS[n as usize % 2], n)).collect();
    let ids = messages.iter().map(|message| message.id).collect();
    place.enqueue(messages).await.unwrap();
    (place, ids)
}

fn verdicts(request: &ClaimRequest, claim: &Claim, verdict: &Verdict) -> Vec<Settlement> {
    let settlement = |id| Settlement {
        id,
        token: request.token,
        verdict: verdict.clone(),
        version: None,
        without_letter: false,
    };
    ids(claim).into_iter().map(settlement).collect()
}

fn retry() -> Verdict {
    Verdict::Retry {
        delay: Duration::ZERO,
        error: "x".into(),
    }
}

/// Proves E2.
#[tokio::test(flavor = "multi_thread")]
async fn one_claim_in_order_at_a_time_and_any_number_without() {
    let (place, all) = place(4, 6).await;
    let other = place.another(2).await;
    let first = request(2);
    let work = claim(&place.store, &first).await;
    assert_eq!(ids(&work), all[..2]);
    // Of a third key, none of whose rows are locked.
    let free = shipment("01890a5d-ac96-774b-bcce-b302099a8059", 6);
    let free_id = free.id;
    place.enqueue(vec![free]).await.unwrap();
    assert_eq!(
        ids(&claim(&other, &request(10)).await),
        [],
        "another relay may not claim in order at the same time"
    );
    let side = unordered(2);
    let beside = claim(&other, &side).await;
    assert_eq!(ids(&beside), all[2..4], "without order they run side by side");
    assert_eq!(
        other
            .settle(&verdicts(&side, &beside, &Verdict::Delivered))
            .await
            .unwrap()
            .lost,
        []
    );
    assert_eq!(
        place
            .store
            .settle(&verdicts(&first, &work, &Verdict::Delivered))
            .await
            .unwrap()
            .lost,
        []
    );
    let last = request(10);
    let rest = claim(&other, &last).await;
    assert_eq!(ids(&rest), [all[4], all[5], free_id]);
    other.settle(&verdicts(&last, &rest, &Verdict::Released)).await.unwrap();
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_given_back_is_what_it_was_before_the_claim() {
    let builtin = BuiltinMap::find("logistics").unwrap();
    let own_label = builtin.toml.replace("[states]", "[states]\nwaiting = \"RETRY\"");
    let place = Place::new(TableMap::from_toml(&own_label).unwrap(), builtin.ddl, 2).await;
    place
        .enqueue(vec![shipment(KEYS[0], 0), shipment(KEYS[1], 1)])
        .await
        .unwrap();
    let all = "select status || ' ' || retry_count || ' ' || coalesce(last_error, '-') from outbox_events order by id";
    let first = request(1);
    let work = claim(&place.store, &first).await;
    place.store.settle(&verdicts(&first, &work, &retry())).await.unwrap();
    let before = place.texts(all).await;
    assert_eq!(before, [Some("RETRY 1 x".to_owned()), Some("PENDING 0 -".to_owned())]);
    let second = request(2);
    let work = claim(&place.store, &second).await;
    assert_eq!(ids(&work).len(), 2);
    let given_back = verdicts(&second, &work, &Verdict::Released);
    assert_eq!(place.store.settle(&given_back).await.unwrap().lost, []);
    assert_eq!(place.texts(all).await, before);
    place.dispose().await;
}

/// Proves pitfalls 4, 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_head_waits_or_is_locked_gives_out_nothing() {
    let (place, all) = place(4, 6).await;
    let first = request(1);
    let work = claim(&place.store, &first).await;
    place.store.settle(&verdicts(&first, &work, &retry())).await.unwrap();
    // Due again at once: it goes alone, with what is free of the other key.
    let second = request(10);
    let work = claim(&place.store, &second).await;
    assert_eq!(ids(&work), [all[0], all[1], all[3], all[5]]);
    assert_eq!(work.messages[0].attempts, 2);
    place
        .store
        .settle(&verdicts(&second, &work, &Verdict::Released))
        .await
        .unwrap();
    place
        .run("update outbox_events set next_attempt_at = now() + interval '1 hour' where retry_count > 0")
        .await;
    let third = request(10);
    let work = claim(&place.store, &third).await;
    assert_eq!(
        ids(&work),
        [all[1], all[3], all[5]],
        "the head waits, and its key with it"
    );
    place
        .store
        .settle(&verdicts(&third, &work, &Verdict::Released))
        .await
        .unwrap();

    let mut lunch = place.store.pool().begin().await.unwrap();
    let head = format!("select from outbox_events where id = '{}' for update", all[1]);
    sqlx::query(sqlx::AssertSqlSafe(head))
        .execute(&mut *lunch)
        .await
        .unwrap();
    assert_eq!(
        ids(&claim(&place.store, &request(10)).await),
        [],
        "somebody else has the other head locked"
    );
    lunch.rollback().await.unwrap();
    place.dispose().await;
}

/// Proves B14.
#[tokio::test(flavor = "multi_thread")]
async fn verdicts_without_their_transaction_are_reported_lost() {
    let (place, all) = place(3, 2).await;
    let first = request(2);
    let work = claim(&place.store, &first).await;
    let mut stranger = verdicts(&first, &work, &Verdict::Delivered);
    for settlement in &mut stranger {
        settlement.token = request(1).token;
    }
    assert_eq!(
        place.store.settle(&stranger).await.unwrap().lost,
        all,
        "a token that no claim has"
    );
    // The server ends the session while the rows are being published.
    place
        .run("select pg_terminate_backend(pid) from pg_locks where locktype = 'tuple' or relation = 'outbox_events'::regclass")
        .await;
    let settlements = verdicts(&first, &work, &Verdict::Delivered);
    assert_eq!(place.store.settle(&settlements).await.unwrap().lost, all);
    assert_eq!(place.store.settle(&settlements).await.unwrap().lost, all, "and again");
    assert_eq!(
        place
            .text("select count(*)::text from outbox_events where status = 'PENDING'")
            .await,
        "2"
    );
    let again = claim(&place.store, &request(10)).await;
    assert_eq!(ids(&again), all, "free for the next claim");
    place.dispose().await;
}

/// Proves pitfall 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_renewed_is_rolled_back_and_one_that_is_holds() {
    let (place, all) = place(4, 4).await;
    let lease = Duration::from_millis(1_500);
    let short = |limit| ClaimRequest {
        lease,
        ..unordered(limit)
    };
    let (kept, left) = (short(2), short(2));
    let kept_work = claim(&place.store, &kept).await;
    let left_work = claim(&place.store, &left).await;
    let renewed = tokio::spawn({
        let (store, token, ids) = (place.store.clone(), kept.token, ids(&kept_work));
        async move {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(400)).await;
                assert_eq!(
                    store.extend(ExtendRequest::new(token, &ids, lease)).await.unwrap().held,
                    ids
                );
            }
        }
    });
    let other = place.another(1).await;
    let mut freed = None;
    eventually("the rows that were left to be free", async || {
        let request = unordered(10);
        let work = claim(&other, &request).await;
        let found = ids(&work);
        if !found.is_empty() {
            other
                .settle(&verdicts(&request, &work, &Verdict::Released))
                .await
                .unwrap();
            freed = Some(found);
        }
        freed.is_some()
    })
    .await;
    assert_eq!(freed.unwrap(), all[2..], "only those");
    renewed.await.unwrap();
    assert_eq!(
        place
            .store
            .extend(ExtendRequest::new(left.token, &all[2..], lease))
            .await
            .unwrap()
            .held,
        []
    );
    assert_eq!(
        place
            .store
            .settle(&verdicts(&left, &left_work, &Verdict::Delivered))
            .await
            .unwrap()
            .lost,
        all[2..]
    );
    assert_eq!(
        place
            .store
            .settle(&verdicts(&kept, &kept_work, &Verdict::Delivered))
            .await
            .unwrap()
            .lost,
        []
    );
    place.dispose().await;
}

/// A process that is stopped cannot watch over itself; the server does.
///
/// Proves E6 and pitfall 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_relay_loses_its_rows_to_the_servers_clock() {
    let (place, all) = place(2, 2).await;
    let (schema, map) = (place.schema.clone(), place.map.clone());
    let (claimed, wait) = std::sync::mpsc::channel();
    let (wake, woken) = std::sync::mpsc::channel::<()>();
    let frozen = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = elsewhere(&schema, map, 1).await;
            let request = ClaimRequest {
                lease: Duration::from_secs(1),
                ..request(10)
            };
            let work = claim(&store, &request).await;
            claimed.send(ids(&work)).unwrap();
            // Nothing of this runtime runs from here on, the watchdog neither.
            woken.recv().unwrap();
            let lost = store
                .settle(&verdicts(&request, &work, &Verdict::Delivered))
                .await
                .unwrap();
            assert_eq!(lost.lost.len(), 2);
        });
    });
    assert_eq!(wait.recv().unwrap(), all);
    eventually("the server to end the session", async || {
        !claim(&place.store, &unordered(10)).await.messages.is_empty()
    })
    .await;
    wake.send(()).unwrap();
    frozen.join().unwrap();
    place.dispose().await;
}

/// One connection carries claims, renewals, verdicts, statistics and producers in turn.
///
/// Proves pitfall 14.
#[tokio::test(flavor = "multi_thread")]
async fn one_connection_is_enough_where_rows_are_locked_too() {
    let (place, all) = place(1, 120).await;
    for (per_key, in_flight) in [(true, 10), (false, 40)] {
        let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
        let mut config = RelayConfig {
            batch_size: 10,
            max_in_flight: in_flight,
            janitor_interval: Duration::from_millis(50),
            ..place.policy()
        };
        config.ordering.per_key = per_key;
        place.run("update outbox_events set status = 'PENDING'").await;
        let relay = Relay::new(place.store.clone(), broker.clone()).config(config);
        let relay = tokio::spawn(relay.run_until(shutdown.clone()));
        place
            .enqueue((0..10).map(|n| shipment(KEYS[0], n)).collect())
            .await
            .unwrap();
        let expected = if per_key { all.len() + 10 } else { all.len() + 20 };
        eventually("all deliveries", async || broker.ids().len() == expected).await;
        shutdown.cancel();
        assert_eq!(relay.await.unwrap().unwrap().delivered, expected as u64);
    }
    place.dispose().await;
}

/// What is looked at grows until something is found, however deep it lies.
///
/// Proves pitfall 18.
#[tokio::test(flavor = "multi_thread")]
async fn a_deep_backlog_of_waiting_keys_hides_nothing() {
    let place = Place::builtin("logistics", 2).await;
    place
        .run(
            "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload, occurred_at, next_attempt_at)
             select gen_random_uuid(), 'Shipment', gen_random_uuid(), 'Moved', '{}', now() - interval '1 hour',
                now() + interval '1 hour' from generate_series(1, 5000) n;
             insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
             values (gen_random_uuid(), 'Shipment', gen_random_uuid(), 'Moved', '{}')",
        )
        .await;
    let request = ClaimRequest {
        scan_limit: Some(100),
        ..request(10)
    };
    assert_eq!(claim(&place.store, &request).await.messages.len(), 1);
    place.dispose().await;
}

/// A trigger that asks for another transaction's lock costs its own row's verdict, and not those of the whole claim.
///
/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_does_not_get_its_lock_costs_its_neighbours_nothing() {
    let (place, all) = place(4, 20).await;
    let table = place.map.table(Table::Outbox).unwrap().name.quoted('"');
    let (id, status) = (
        place.map.column(Role::Id).unwrap().name.quoted('"'),
        place.map.column(Role::Status).unwrap().name.quoted('"'),
    );
    place
        .run(&format!(
            "create table ledger as select {id} as id from {table};
             create function book() returns trigger language plpgsql as $$
             begin
                 if new.{status} is distinct from old.{status} then
                     perform from ledger where id = new.{id} for update nowait;
                 end if;
                 return new;
             end $$;
             create trigger book before update on {table} for each row execute function book()"
        ))
        .await;
    let other = place.another(1).await;
    let mut other = other.pool().begin().await.unwrap();
    let lock = format!("select from ledger where id = '{}' for update", all[7]);
    other.execute(AssertSqlSafe(lock)).await.unwrap();
    let request = unordered(20);
    let work = claim(&place.store, &request).await;
    let settled = place
        .store
        .settle(&verdicts(&request, &work, &Verdict::Delivered))
        .await;
    let settled = settled.unwrap();
    assert_eq!(settled.lost, all[7..=7]);
    assert!(settled.refused.is_empty());
    other.rollback().await.unwrap();
    let request = unordered(20);
    let work = claim(&place.store, &request).await;
    assert_eq!(ids(&work), all[7..=7]);
    let settled = place
        .store
        .settle(&verdicts(&request, &work, &Verdict::Delivered))
        .await;
    assert!(settled.unwrap().lost.is_empty());
    place.dispose().await;
}

/// Whoever wants the whole table waits until the verdicts are written, and not the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_locks_the_table_as_a_whole_between_a_claim_and_its_verdicts() {
    let (place, all) = place(4, 2).await;
    let table = place.map.table(Table::Outbox).unwrap().name.quoted('"');
    let request = unordered(20);
    let work = claim(&place.store, &request).await;
    let other = place.another(1).await;
    let lock = format!("lock table {table} in share mode nowait");
    let mut early = other.pool().begin().await.unwrap();
    let error = early.execute(AssertSqlSafe(lock.clone())).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "55P03");
    early.rollback().await.unwrap();
    let settled = place
        .store
        .settle(&verdicts(&request, &work, &Verdict::Delivered))
        .await;
    assert_eq!((ids(&work), settled.unwrap().lost), (all, Vec::new()));

    let mut later = other.pool().begin().await.unwrap();
    later.execute(AssertSqlSafe(lock)).await.unwrap();
    let error = place.store.claim(&unordered(20)).await.unwrap_err();
    assert!(error.message.contains("has locked the whole table"), "{error}");
    later.rollback().await.unwrap();
    place.dispose().await;
}
