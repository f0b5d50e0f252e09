//! Verdicts that the database refuses are found before anything is published.

use posthaste_core::store::{ProducerStore, RelayStore};
use posthaste_core::{Message, OutboxOptions};

use super::tables::{Foreign, USAGE_DDL, usage_map};

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
            let foreign = Foreign::new(USAGE_DDL, usage_map()).await;
            let messages = (0..rows).map(|n| Message::new("t", format!("{n}"))).collect();
            let options = OutboxOptions::default();
            foreign.store.enqueue_and_commit(&options, messages).await.unwrap();
            foreign.store.check().await.unwrap();
            foreign.execute(problem).await;
            let error = foreign.store.check().await.expect_err("a verdict is refused");
            assert!(error.message.contains(part), "{error}");
            assert!(error.remedy.is_some());
            let pending = "select count(*) from modkit_outbox_events where status = 'pending' and attempts = 0";
            assert_eq!(foreign.number(pending).await, rows, "nothing is left of it");
        }
    }
}
