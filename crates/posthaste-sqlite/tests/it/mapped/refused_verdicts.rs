//! Verdicts that the database refuses are found before anything is published.

use posthaste_core::store::{ProducerStore, RelayStore, Scope};
use posthaste_core::{Message, OutboxOptions};

use super::tables::{MappedTable, USAGE_DDL, usage_map};

/// With rows, and without: a table may be empty when its relay is first started.
#[tokio::test]
async fn what_a_trigger_refuses_or_ignores_is_said_by_the_check() {
    for rows in [0, 3] {
        for (problem, part) in [
            (
                "create trigger no before update on modkit_outbox_events when new.status = 'delivered'
                 begin select raise(abort, 'not so'); end",
                "`delivered`",
            ),
            (
                "create trigger no before update on modkit_outbox_events when new.status = 'dead'
                 begin select raise(ignore); end",
                "the row stays as it was",
            ),
            (
                "create unique index one on modkit_outbox_events (status) where status in ('processing', 'delivered')",
                "UNIQUE",
            ),
        ] {
            if rows == 0 && part == "UNIQUE" {
                continue;
            }
            let mapped = MappedTable::new(USAGE_DDL, usage_map()).await;
            let messages = (0..rows).map(|n| Message::new("t", format!("{n}"))).collect();
            let options = OutboxOptions::default();
            mapped.store.enqueue_and_commit(&options, messages).await.unwrap();
            mapped.store.check().await.unwrap();
            mapped.execute(problem).await;
            let error = mapped.store.check().await.expect_err("a verdict is refused");
            assert!(error.message.contains(part), "{error}");
            assert!(error.remedy.is_some());
            let pending = "select count(*) from modkit_outbox_events where status = 'pending' and attempts = 0";
            assert_eq!(mapped.number(pending).await, rows, "nothing is left of it");
        }
    }
}

/// Their trigger is theirs: it must not stop a relay of others, whether that has rows or not.
#[tokio::test]
async fn a_trial_leaves_the_rows_of_other_namespaces_topics_and_tenants_alone() {
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
        let mapped = MappedTable::new(USAGE_DDL, usage_map()).await;
        enqueue_in(&mapped, scope).await;
        let trigger = format!(
            "create trigger theirs before update on modkit_outbox_events
             when new.namespace = '{}' and new.topic = '{}' and new.tenant_id = '{}'
             begin select raise(abort, 'theirs'); end",
            scope.namespace,
            scope.topics[0],
            scope.tenant.as_deref().unwrap()
        );
        mapped.execute(&trigger).await;
        let error = mapped.store.check_for(scope).await.expect_err("it is for them");
        assert!(error.message.contains("theirs"), "{error}");
        mapped.store.check_for(&ours).await.unwrap();
        enqueue_in(&mapped, &ours).await;
        mapped.store.check_for(&ours).await.unwrap();
    }
}

async fn enqueue_in(mapped: &MappedTable, scope: &Scope) {
    let options = OutboxOptions::new().namespace(scope.namespace.clone());
    let mut message = Message::new(&*scope.topics[0], "{}");
    message.tenant = scope.tenant.as_deref().map(Into::into);
    mapped.store.enqueue_and_commit(&options, vec![message]).await.unwrap();
}
