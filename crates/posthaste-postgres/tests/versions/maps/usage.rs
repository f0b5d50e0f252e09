//! A usage outbox: leases, dedupe keys, tenants.

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::{AdminStore, Enqueued, Message, MessageId, RelayStore};

use super::place::{Place, claim, ids, request};

/// Proves B1, B6.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_goes_through_its_life_in_the_columns_it_has() {
    let place = Place::builtin("usage", 2).await;
    let tenant = "01890a5d-ac96-774b-bcce-b302099a8057";
    let message = Message::new("usage", "{\"units\": 3}")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/1"));
    let first = place.enqueue(vec![message.clone()]).await.unwrap();
    let second = place
        .enqueue(vec![Message {
            id: MessageId::new(),
            ..message.clone()
        }])
        .await
        .unwrap();
    assert_eq!(second, [Enqueued::Duplicate(first[0].id())]);
    let row = "select concat_ws(' ', namespace, topic, tenant_id, dedupe_key, payload, status, attempts,
        next_attempt_at = created_at, locked_by is null, locked_until is null, last_error) from modkit_outbox_events";
    let begun = format!("default usage {tenant} {tenant}/1 {{\"units\": 3}}");
    assert_eq!(place.text(row).await, format!("{begun} pending 0 t t t"));
    let request = request(10);
    let work = claim(&place.store, &request).await;
    assert_eq!(
        (ids(&work), work.messages[0].message.tenant.as_deref()),
        (vec![message.id], Some(tenant))
    );
    assert_eq!(place.text(row).await, format!("{begun} processing 1 t f f"));
    let failed = posthaste_core::lifecycle::Settlement {
        id: message.id,
        token: request.token,
        verdict: Verdict::Dead { error: "no".into() },
        version: None,
        without_letter: false,
    };
    assert_eq!(place.store.settle(&[failed]).await.unwrap().lost, []);
    assert_eq!(place.text(row).await, format!("{begun} dead 1 t t t no"));
    assert_eq!(place.store.show(message.id).await.unwrap().unwrap().state, State::Dead);
    place.dispose().await;
}
