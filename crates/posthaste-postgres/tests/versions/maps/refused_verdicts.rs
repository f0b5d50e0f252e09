//! Verdicts that the database refuses: said before anything is published, and else without harm to their neighbours.

use std::time::Duration;

use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::store::{ProducerStore, Scope, StoreErrorKind, StoreRequirements};
use posthaste_core::{Message, MessageId, OutboxOptions, PublishError, RelayStore, StoreError};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{Fault, FaultyPublisher, RecordingPublisher, Rule};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;

use super::place::{Place, claim, eventually, ids, request};

use crate::support;

const KEY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn order(n: u32) -> Message {
    Message::new("order-events", format!("{{\"n\": {n}}}"))
        .aggregate("Order", KEY)
        .event_type("OrderCreated")
}

async fn order_service(messages: u32) -> (Place, Vec<MessageId>) {
    let place = Place::builtin("order-service", 3).await;
    let messages: Vec<_> = (0..messages).map(order).collect();
    let ids = messages.iter().map(|message| message.id).collect();
    place.enqueue(messages).await.unwrap();
    (place, ids)
}

async fn refusal(store: &PostgresStore) -> StoreError {
    store.check().await.expect_err("the table refuses a verdict")
}

/// The store as a user with these rights sees it. `{}` stands for the user.
async fn as_user(place: &Place, grants: &[&str]) -> (PostgresStore, String) {
    let role = format!("r_{}", &place.schema[2..]);
    place.run(&format!("create role {role}")).await;
    place
        .run(&format!("grant usage on schema {} to {role}", place.schema))
        .await;
    for grant in grants {
        place.run(&grant.replace("{}", &role)).await;
    }
    let become_user = format!("set role {role}; set search_path = {}", place.schema);
    let pool = PgPoolOptions::new().max_connections(2).after_connect(move |conn, _| {
        let become_user = become_user.clone();
        Box::pin(async move { conn.execute(AssertSqlSafe(become_user)).await.map(drop) })
    });
    let pool = pool.connect(&support::server_url()).await.unwrap();
    (PostgresStore::with_map(pool, place.map.clone()).unwrap(), role)
}

async fn drop_user(place: Place, user: PostgresStore, role: &str) {
    user.pool().close().await;
    place.run(&format!("drop owned by {role}; drop role {role}")).await;
    place.dispose().await;
}

async fn contents(place: &Place, table: &str) -> Vec<Option<String>> {
    place.texts(&format!("select t::text from {table} t order by 1")).await
}

/// With rows, and without: a table may be empty when its relay is first started.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_constraint_refuses_is_found_before_anything_is_published() {
    for rows in [0, 3] {
        let (place, _) = order_service(rows).await;
        place.store.check().await.unwrap();
        let before = contents(&place, "outbox").await;
        place
            .run("alter table outbox add check (status in ('NEW', 'PUBLISHED', 'FAILED'))")
            .await;
        let error = refusal(&place.store).await;
        assert!(error.message.contains("`delivered`"), "{error}");
        assert!(error.message.contains("outbox_status_check"), "{error}");
        assert!(error.remedy.is_some());
        // A user that may not insert cannot try it on a row of its own.
        let grants = ["grant select, update on outbox to {}"];
        let (user, role) = as_user(&place, &grants).await;
        let error = refusal(&user).await;
        assert!(error.message.contains("outbox_status_check"), "{error}");
        assert_eq!(contents(&place, "outbox").await, before, "nothing is left of it");
        drop_user(place, user, &role).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_a_verdict_needs_is_found_before_anything_is_published() {
    for rows in [0, 3] {
        let (place, _) = order_service(rows).await;
        let (user, role) = as_user(&place, &["grant select, update (status, sent_at) on outbox to {}"]).await;
        let error = refusal(&user).await;
        assert_eq!(error.kind, StoreErrorKind::Access);
        assert!(error.message.contains("permission denied"), "{error}");
        assert!(error.remedy.unwrap().contains("update"), "{error}");
        place
            .run(&format!("grant update (error_message) on outbox to {role}"))
            .await;
        user.check().await.expect("now it has all that it needs");
        drop_user(place, user, &role).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_unique_indexes_and_short_columns_are_found_on_rows_that_are_there() {
    for (problem, part) in [
        (
            "create function no() returns trigger language plpgsql as $$ begin raise exception 'not so'; end $$;
             create trigger no before update on outbox for each row when (new.status = 'FAILED') execute function no()",
            "`dead`",
        ),
        (
            "create function no() returns trigger language plpgsql as $$ begin return null; end $$;
             create trigger no before update on outbox for each row execute function no()",
            "the row stays as it was",
        ),
        (
            "create function no() returns trigger language plpgsql as $$ begin raise exception 'not so'; end $$;
             create constraint trigger no after update on outbox deferrable initially deferred
             for each row execute function no()",
            "not so",
        ),
        (
            "update outbox set status = 'SENT' where id = (select id from outbox limit 1);
             create unique index one on outbox (aggregate_id) where status = 'SENT'",
            "\"one\"",
        ),
        ("alter table outbox alter error_message type varchar(100)", "too long"),
    ] {
        let (place, _) = order_service(3).await;
        place.run(problem).await;
        let before = contents(&place, "outbox").await;
        let error = refusal(&place.store).await;
        assert!(error.message.contains(part), "{problem}: {error}");
        assert_eq!(contents(&place, "outbox").await, before, "nothing is left of it");
        place.dispose().await;
    }
}

/// Locks of others are no refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_use_passes_the_trial() {
    let (place, _) = order_service(3).await;
    let mut other = place.store.pool().begin().await.unwrap();
    other.execute("select from outbox for update").await.unwrap();
    place.store.check().await.unwrap();
    other.rollback().await.unwrap();
    // Not even the columns can be read; that was so before, too, and ends.
    let mut other = place.store.pool().begin().await.unwrap();
    other
        .execute("lock table outbox in share row exclusive mode")
        .await
        .unwrap();
    place.store.check().await.unwrap();
    other.rollback().await.unwrap();
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_with_leases_are_tried_too_with_their_dead_letters() {
    let place = Place::builtin("usage", 3).await;
    place.store.check().await.unwrap();
    for (problem, undo, part) in [
        (
            "alter table modkit_outbox_events add constraint c check (status <> 'processing')",
            "alter table modkit_outbox_events drop constraint c",
            "`claim`",
        ),
        (
            "alter table modkit_outbox_events add constraint c check (status <> 'dead')",
            "alter table modkit_outbox_events drop constraint c",
            "`dead`",
        ),
    ] {
        place.run(problem).await;
        let error = refusal(&place.store).await;
        assert!(error.message.contains(part), "{error}");
        place.run(undo).await;
    }
    assert_eq!(contents(&place, "modkit_outbox_events").await, []);
    place.dispose().await;

    let own = support::store(2).await;
    own.check().await.unwrap();
    let schema = own.channel().replace("posthaste:", "");
    let constraint = format!("alter table {schema}.outbox add check (last_error is null)");
    own.pool().execute(AssertSqlSafe(constraint)).await.unwrap();
    let error = refusal(&own).await;
    assert!(error.message.contains("`retry`"), "{error}");
}

/// Proves B14.
#[tokio::test(flavor = "multi_thread")]
async fn one_refused_verdict_is_named_and_its_neighbours_are_settled() {
    let (place, all) = order_service(100).await;
    assert!(
        matches!(
            place.store.requirements(),
            StoreRequirements {
                batch_settlement: true,
                ..
            }
        ),
        "the store itself has to find the culprit"
    );
    place
        .run(&format!(
            "create function no() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
             create trigger no before update on outbox for each row when (new.id in ('{}', '{}')) execute function no()",
            all[41], all[99]
        ))
        .await;
    let request = request(100);
    let work = claim(&place.store, &request).await;
    let settlements: Vec<_> = ids(&work)
        .into_iter()
        .map(|id| Settlement {
            id,
            token: request.token,
            verdict: Verdict::Delivered,
            version: None,
            without_letter: false,
        })
        .collect();
    assert_eq!(settlements.len(), 100);
    let settled = place.store.settle(&settlements).await.unwrap();
    assert_eq!(settled.lost, []);
    let mut refused: Vec<_> = settled.refused.iter().map(|refused| refused.id).collect();
    refused.sort_unstable();
    assert_eq!(refused, [all[41], all[99]]);
    assert!(settled.refused[0].error.message.contains("not this one"));
    assert!(!settled.refused[0].error.kind.is_transient());
    let sent = "select count(*)::text from outbox where status = 'SENT'";
    assert_eq!(place.text(sent).await, "98");
    place.dispose().await;
}

/// A constraint that speaks at the commit would take the neighbours along.
#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_refusal_is_found_as_any_other() {
    let (place, all) = order_service(10).await;
    place
        .run(&format!(
            "create function no() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
             create constraint trigger no after update on outbox deferrable initially deferred
             for each row when (new.id = '{}') execute function no()",
            all[3]
        ))
        .await;
    let request = request(100);
    let work = claim(&place.store, &request).await;
    let delivered = |id| Settlement::delivered(id, request.token);
    let settlements: Vec<_> = ids(&work).into_iter().map(delivered).collect();
    let settled = place.store.settle(&settlements).await.unwrap();
    assert_eq!(settled.lost, []);
    assert_eq!(settled.refused.len(), 1);
    assert_eq!(settled.refused[0].id, all[3]);
    let sent = "select count(*)::text from outbox where status = 'SENT'";
    assert_eq!(place.text(sent).await, "9");
    place.dispose().await;
}

/// The culprits stand at the head of the table, more than a batch of them, and come with every claim.
///
/// Proves B14.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_behind_refused_verdicts() {
    let (place, culprits) = order_service(12).await;
    let names: Vec<_> = culprits.iter().map(|id| format!("'{id}'")).collect();
    let config = RelayConfig {
        poll_interval: Duration::from_millis(20),
        max_poll_interval: Duration::from_millis(20),
        fixed_delay: false,
        ..place.policy()
    };
    assert!(config.batch_size < 12);
    let (broker, shutdown) = (
        FaultyPublisher::new(RecordingPublisher::new()),
        CancellationToken::new(),
    );
    broker.hang();
    let relay = Relay::new(place.store.clone(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    // After the relay has tried the table.
    broker.wait_until_hanging(1).await;
    place
        .run(&format!(
            "create function no() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
             create trigger no before update on outbox for each row when (new.id in ({})) execute function no()",
            names.join(", ")
        ))
        .await;
    broker.heal();
    place.enqueue((100..120).map(order).collect()).await.unwrap();
    let sent = "select count(*)::text from outbox where status = 'SENT'";
    eventually("the others to be published", async || place.text(sent).await == "20").await;
    place.run("drop trigger no on outbox").await;
    eventually("all to be published", async || place.text(sent).await == "32").await;
    shutdown.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(broker.inner().ids().len(), 32, "each once");
    place.dispose().await;
}

/// A topic that is missing has rows enough to fill many claims, in a table without a place to say that they wait.
///
/// Proves B14.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_behind_the_backlog_of_a_destination_that_is_unavailable() {
    let place = Place::builtin("order-service", 3).await;
    let gone = |n: u32| {
        let message = Message::new("gone-events", format!("{{\"n\": {n}}}"));
        message.aggregate("Gone", KEY).event_type("OrderGone")
    };
    place.enqueue((0..1_500).map(gone).collect()).await.unwrap();
    place.enqueue((0..20).map(order).collect()).await.unwrap();
    let config = RelayConfig {
        poll_interval: Duration::from_secs(1),
        max_poll_interval: Duration::from_secs(1),
        ..place.policy()
    };
    assert!(config.fixed_delay && config.batch_size == 10);
    let (broker, shutdown) = (
        FaultyPublisher::new(RecordingPublisher::new()),
        CancellationToken::new(),
    );
    let missing = Fault::Error(PublishError::transport("no such topic").at("gone-events"));
    broker.inject(Rule::new(missing).when(|message| message.aggregate_type.as_deref() == Some("Gone")));
    let relay = Relay::new(place.store.clone(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    let sent = "select count(*)::text from outbox where status = 'SENT'";
    eventually("the others to be published", async || place.text(sent).await == "20").await;
    shutdown.cancel();
    relay.await.unwrap().unwrap();
    place.dispose().await;
}

/// Their trigger is theirs: it must not stop a relay of others, whether that has rows or not.
#[tokio::test]
async fn a_trial_leaves_the_rows_of_other_namespaces_topics_and_tenants_alone() {
    let place = Place::builtin("usage", 3).await;
    let tenant = |n: u32| Some(format!("01890a5d-ac96-774b-bcce-b302099a805{n}"));
    let ours = Scope {
        namespace: "ours".to_owned(),
        topics: vec!["orders".to_owned()],
        tenant: tenant(1),
    };
    let theirs = [
        Scope {
            namespace: "theirs".to_owned(),
            ..ours.clone()
        },
        Scope {
            topics: vec!["invoices".to_owned()],
            ..ours.clone()
        },
        Scope {
            tenant: tenant(2),
            ..ours.clone()
        },
    ];
    for scope in &theirs {
        place.run("truncate modkit_outbox_events").await;
        enqueue_in(&place, scope).await;
        place
            .run(
                "create or replace function refuse() returns trigger language plpgsql as $$
                 begin raise exception 'theirs'; end $$;
                 drop trigger if exists theirs on modkit_outbox_events",
            )
            .await;
        let theirs = format!(
            "create trigger theirs before update on modkit_outbox_events for each row
             when (new.namespace = '{}' and new.topic = '{}' and new.tenant_id = '{}') execute function refuse()",
            scope.namespace,
            scope.topics[0],
            scope.tenant.as_deref().unwrap()
        );
        place.run(&theirs).await;
        let error = place.store.check_for(scope).await.expect_err("it is for them");
        assert!(error.message.contains("theirs"), "{error}");
        place.store.check_for(&ours).await.unwrap();
        enqueue_in(&place, &ours).await;
        place.store.check_for(&ours).await.unwrap();
    }
    place.dispose().await;
}

async fn enqueue_in(place: &Place, scope: &Scope) {
    let options = OutboxOptions::new().namespace(scope.namespace.clone());
    let mut message = Message::new(&*scope.topics[0], "{}");
    message.tenant = scope.tenant.as_deref().map(Into::into);
    place.store.enqueue_and_commit(&options, vec![message]).await.unwrap();
}
