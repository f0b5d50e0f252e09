//! What a table cannot do is said with its remedy, never passed over.

use posthaste_core::store::{DeadHead, Filter, KeyOrdering, RelayRegistry, SchemaStore, Scope, StoreErrorKind};
use posthaste_core::{AdminStore, Inbox, RelayStore, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;

use super::place::{Place, request};

fn says(refused: Result<impl std::fmt::Debug, StoreError>, parts: &[&str]) {
    let error = refused.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_column_that_is_not_there_is_refused() {
    let place = Place::builtin("order-service", 2).await;
    let store = &place.store;
    let scope = |topics: &[&str], tenant: Option<&str>| Scope {
        topics: topics.iter().map(|&topic| topic.into()).collect(),
        tenant: tenant.map(Into::into),
        namespace: "whatever".into(),
    };
    let mut asked = request(1);
    asked.scope = scope(&["order-events"], None);
    says(
        store.claim(&asked).await,
        &["scope.topics", "order-service", "route in the publisher"],
    );
    says(
        store.sweep(&scope(&[], Some("a")), 5).await,
        &["scope.tenant", "map a column"],
    );
    asked.scope = scope(&[], None);
    asked.ordering = KeyOrdering::PerKey {
        dead_head: DeadHead::Skip,
        except: vec!["a".into()],
    };
    says(store.claim(&asked).await, &["dead heads", "one policy"]);
    let filter = Filter {
        topic: Some("order-events".into()),
        ..Filter::default()
    };
    says(store.list(&filter, None, 1).await, &["topic", "name rows by id"]);
    says(store.replay(&filter, 1).await, &["topic"]);
    says(store.discard(&filter, 1).await, &["topic"]);
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_registry_relays_are_not_listed_and_none_leads() {
    let place = Place::builtin("usage", 2).await;
    let store = &place.store;
    assert!(store.registry().is_none(), "there is no table for it");
    says(
        store.relays("default").await,
        &["list of relays", "Posthaste's own tables"],
    );
    let mut tx = store.pool().begin().await.unwrap();
    says(store.inbox("c").record(&mut tx, "k").await, &["inbox"]);
    drop(tx);
    assert_eq!(
        (store.applied().await.unwrap(), store.migrate().await.unwrap()),
        (vec![], vec![])
    );
    assert_eq!(store.channel(), "posthaste:modkit_outbox_events");
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_does_not_fit_its_table_is_found_at_the_start() {
    let builtin = BuiltinMap::find("usage").unwrap();
    let wrong = |from: &str, to: &str| TableMap::from_toml(&builtin.toml.replace(from, to)).unwrap();
    for (map, part) in [
        (wrong("\"last_error\"", "\"last_eror\""), "last_eror"),
        (wrong("\"modkit_outbox_events\"", "\"modkit\""), "modkit"),
        (wrong("attempts = \"attempts\"", "attempts = \"topic\""), "statement"),
        (
            wrong("delivered = \"delivered\"", "delivered = 2"),
            "operator does not exist",
        ),
    ] {
        let place = Place::new(map, builtin.ddl, 1).await;
        let error = place.store.check().await.unwrap_err();
        assert!(
            matches!(error.kind, StoreErrorKind::SchemaMissing | StoreErrorKind::Other),
            "{error:?}"
        );
        says(
            Err::<(), _>(error),
            &[part, "the table map `usage` does not fit", "posthaste maps check"],
        );
        place.dispose().await;
    }
}
