//! What is refused before anything runs, and what is said.

use posthaste_core::store::{AdminStore, ClaimRequest, Filter, RelayRegistry, RelayStore, Scope, StoreErrorKind};
use posthaste_core::{Inbox, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use posthaste_sqlite::SqliteStore;

use super::tables::{DONATION_DDL, MappedTable, USAGE_DDL, donation_map, request, usage_map};

use crate::support;

fn says(error: &StoreError, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "`{error}` does not say `{word}`");
    }
}

#[tokio::test]
async fn maps_that_sqlite_cannot_serve_are_refused_with_what_to_add() {
    let (pool, _directory) = support::pool(1).await;
    let open = |map: TableMap| SqliteStore::with_map(pool.clone(), map).unwrap_err();
    let builtin = |name: &str| BuiltinMap::find(name).unwrap().map().unwrap();
    says(
        &open(builtin("order-service")),
        &[
            "`order-service`",
            r#"alter table "outbox" add column locked_until integer;"#,
            "add column attempts integer",
            "states.processing",
        ],
    );
    let logistics = open(builtin("logistics"));
    says(
        &logistics,
        &[r#"alter table "outbox_events" add column locked_by text;"#],
    );
    assert!(!logistics.to_string().contains("add column attempts"), "{logistics}");
    says(
        &open(builtin("commerce")),
        &["`commerce`", "a log with a cursor is served on PostgreSQL only"],
    );
    assert_eq!(logistics.kind, StoreErrorKind::Unsupported);
    let zone = |zone: &str| {
        let toml = BuiltinMap::find("donation").unwrap().toml;
        TableMap::from_toml(&toml.replace("order = ", &format!("zone = \"{zone}\"\norder = "))).unwrap()
    };
    says(&open(zone("Asia/Seoul")), &["Asia/Seoul", "+09:00"]);
    assert!(SqliteStore::with_map(pool.clone(), zone("+09:00")).is_ok());
    let toml = BuiltinMap::find("usage").unwrap().toml;
    let split = TableMap::from_toml(&toml.replace("order = ", "split_index = true\norder = ")).unwrap();
    says(&open(split), &["split_index", "leave it out"]);
}

#[tokio::test]
async fn a_mapped_column_that_is_missing_is_named() {
    let (pool, _directory) = support::pool(1).await;
    let store = SqliteStore::with_map(pool.clone(), usage_map()).unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::SchemaMissing);
    says(&error, &["no table `modkit_outbox_events`", "posthaste maps check"]);

    let mapped = MappedTable::new(USAGE_DDL, usage_map()).await;
    mapped
        .execute("alter table modkit_outbox_events rename column tenant_id to tennant")
        .await;
    says(
        &mapped.store.check().await.unwrap_err(),
        &["no column `tenant_id` for tenant", "maps check"],
    );

    let mapped = MappedTable::new(DONATION_DDL, donation_map()).await;
    mapped
        .execute("alter table donation_dlq rename column reason to why")
        .await;
    says(
        &mapped.store.check().await.unwrap_err(),
        &["`donation_dlq` has no column `reason` for last_error"],
    );
}

#[tokio::test]
async fn what_needs_a_registry_is_quiet_or_says_so() {
    let mapped = MappedTable::new(USAGE_DDL, usage_map()).await;
    assert!(mapped.store.registry().is_none(), "there is no table for it");
    says(
        &mapped.store.relays("default").await.unwrap_err(),
        &["list of relays", "`usage`", "has no table for it"],
    );
    let mut tx = mapped.store.pool().begin().await.unwrap();
    let error = mapped.store.inbox("c").record(&mut tx, "k").await.unwrap_err();
    says(&error, &["inbox", "`usage`", "has no table for it"]);
}

#[tokio::test]
async fn what_a_table_cannot_be_asked_for_is_an_error() {
    let mapped = MappedTable::new(DONATION_DDL, donation_map()).await;
    let claim = async |scope: Scope| mapped.store.claim(&ClaimRequest { scope, ..request() }).await;
    let topics = Scope {
        topics: vec!["t".to_owned()],
        ..Scope::default()
    };
    says(&claim(topics.clone()).await.unwrap_err(), &["scope.topics"]);
    says(&mapped.store.sweep(&topics, 1).await.unwrap_err(), &["scope.topics"]);
    let tenant = Scope {
        tenant: Some("t".to_owned()),
        ..Scope::default()
    };
    says(&claim(tenant).await.unwrap_err(), &["scope.tenant"]);
    let namespace = Scope {
        namespace: "any".to_owned(),
        ..Scope::default()
    };
    claim(namespace).await.expect("the table is served whole");
    let filter = Filter {
        topic: Some("donation-events".to_owned()),
        ..Filter::default()
    };
    says(
        &mapped.store.list(&filter, None, 1).await.unwrap_err(),
        &["topic", "by id"],
    );
    says(&mapped.store.replay(&filter, 1).await.unwrap_err(), &["topic"]);
}
