//! A usage outbox: leases, dedupe keys, tenants. The cases of the conformance suite that its columns allow run on it.

use std::time::Duration;

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::StoreCapabilities;
use posthaste_core::{
    AdminStore, EnqueueError, Enqueued, Mark, Message, MessageId, OutboxOptions, RelayStore, StoreError,
};
use posthaste_postgres::PostgresStore;
use posthaste_testkit::{Backend, Trouble};
use sqlx::{AssertSqlSafe, Executor, Postgres, Transaction};

use crate::place::{Place, claim, ids, request};

pub struct Usage(Place);

impl Backend for Usage {
    type Store = PostgresStore;
    type Tx = Transaction<'static, Postgres>;

    fn capabilities() -> StoreCapabilities {
        StoreCapabilities {
            concurrent_claims: true,
            concurrent_writers: true,
            durable: true,
        }
    }

    async fn fresh() -> Self {
        let place = Place::shipped("usage", 8).await;
        place.run("create table business (key text not null)").await;
        Self(place)
    }

    fn store(&self) -> &PostgresStore {
        &self.0.store
    }

    async fn begin(&self) -> Self::Tx {
        self.store().pool().begin().await.unwrap()
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Self::Tx) {
        tx.rollback().await.unwrap();
    }

    async fn enqueue(
        &self,
        tx: &mut Self::Tx,
        messages: Vec<Message>,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        // The cases' payloads are any bytes; the table takes JSON.
        let json = |mut message: Message| {
            if serde_json::from_slice::<serde_json::Value>(&message.payload).is_err() {
                message.payload = serde_json::json!(String::from_utf8_lossy(&message.payload))
                    .to_string()
                    .into();
            }
            message
        };
        let messages: Vec<_> = messages.into_iter().map(json).collect();
        self.store().outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        sqlx::query("insert into business values ($1)")
            .bind(key)
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn business_rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from business");
        rows.fetch_all(self.store().pool()).await.unwrap()
    }

    async fn record_handled(&self, _: &mut Self::Tx, _: &str, _: &str) -> Result<bool, StoreError> {
        unreachable!("the table has no inbox beside it")
    }

    async fn mark(&self, _: &mut Self::Tx, _: Mark) -> Result<(), StoreError> {
        unreachable!("the table has no inbox beside it")
    }

    async fn prove(&self, _: &mut Self::Tx, _: Mark) -> Result<(), StoreError> {
        unreachable!("the table has no inbox beside it")
    }

    async fn meet(&self, _: &mut Self::Tx, _: Trouble) {
        unreachable!("the table has no inbox beside it")
    }

    async fn purge_inbox(&self, _: &str, _: Duration, _: u32) -> Result<u64, StoreError> {
        unreachable!("the table has no inbox beside it")
    }

    async fn pass_time(&self, by: Duration) {
        let step = format!("interval '{} microseconds'", by.as_micros());
        let sql = format!(
            "update modkit_outbox_events set created_at = created_at - {step}, updated_at = updated_at - {step},
                next_attempt_at = next_attempt_at - {step}, locked_until = locked_until - {step}"
        );
        self.store().pool().execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        let ids: Vec<_> = ids.iter().map(|id| format!("'{id}'")).collect();
        let mut sql = "alter table modkit_outbox_events drop constraint if exists no_change".to_owned();
        if !ids.is_empty() {
            let check = format!("check (id not in ({})) not valid", ids.join(", "));
            sql = format!("{sql}, add constraint no_change {check}");
        }
        self.store().pool().execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn corrupt_payload(&self, _: MessageId) {
        unreachable!("the table has no hash")
    }

    async fn lock_row(&self, tx: &mut Self::Tx, id: MessageId) -> bool {
        let sql = format!("select from modkit_outbox_events where id = '{id}' for update");
        tx.execute(AssertSqlSafe(sql)).await.unwrap();
        true
    }

    async fn lock_table(&self, tx: &mut Self::Tx) -> bool {
        let sql = "lock table modkit_outbox_events in access exclusive mode";
        tx.execute(sql).await.unwrap();
        true
    }

    async fn dispose(self) {
        self.0.dispose().await;
    }
}

macro_rules! cases {
    ($($module:ident { $($case:ident)* })*) => {$(
        mod $module {
            use super::Usage;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    posthaste_testkit::suite::run(async |usage: &Usage| {
                        posthaste_testkit::suite::$module::$case(usage).await;
                    })
                    .await;
                }
            )*
        }
    )*};
}

cases! {
    enqueue {
        a_new_row_is_pending_due_and_unleased
        a_rollback_leaves_neither_message_nor_business_row
        a_dropped_transaction_is_a_rollback
        a_commit_leaves_both_message_and_business_row
        an_uncommitted_message_is_not_claimed
        an_empty_call_writes_nothing
        a_scheduled_message_waits_for_its_time
        a_time_in_the_past_is_now
        a_producer_without_a_transaction_is_served_too
    }
    claim {
        no_more_than_the_limit_is_taken
        an_empty_outbox_gives_nothing
        reclaimed_rows_are_never_mixed_with_others
        fewer_rows_are_risked_each_time_a_worker_vanishes
        a_poison_message_dies_and_takes_no_neighbour_along
        a_row_without_attempts_left_is_not_claimed
        a_retry_is_not_claimed_before_its_time
        a_relay_serves_only_its_namespace
        the_store_says_that_all_is_well
    }
    unclaimable {
        rows_that_are_all_refused_stop_nobody_behind_them
        a_drain_delivers_all_but_a_refused_row_and_says_so
    }
    settle {
        a_delivered_row_takes_no_further_verdict
        a_retry_keeps_the_error_and_waits_without_a_lease
        the_last_error_outlives_a_later_delivery
        a_dead_row_keeps_its_error_and_is_not_claimed
        a_released_row_is_as_if_it_had_not_been_claimed
        a_released_retry_refunds_one_attempt_only
        a_postponed_row_waits_with_its_error_and_keeps_its_attempts
        a_stale_token_changes_nothing_and_is_reported_lost
        a_token_does_not_come_back_with_the_attempt_count
        unknown_rows_and_tokens_are_reported_lost
        a_late_verdict_counts_while_nobody_else_has_the_row
        each_message_of_a_batch_has_an_outcome_of_its_own
        no_verdicts_are_no_work
        a_very_long_delay_is_kept
    }
    lease {
        an_extended_lease_holds_longer
        an_extended_lease_runs_out_too
        a_lost_lease_cannot_be_extended
        an_extension_names_the_leases_that_are_still_held
    }
    sweep {
        a_row_whose_worker_vanished_on_the_last_attempt_is_swept
        a_live_lease_is_not_swept
        rows_with_attempts_left_are_not_swept
        a_fresh_row_above_a_lowered_limit_is_swept
    }
    admin {
        a_list_goes_on_where_the_last_page_ended
        an_unknown_id_shows_nothing
        only_dead_rows_are_replayed_or_discarded
        of_two_operators_who_replay_a_row_one_gets_it
        of_a_replay_and_a_discard_one_gets_the_row
        a_discarded_row_is_gone
    }
    purge {
        delivered_rows_are_removed_once_they_are_old
        a_row_that_was_not_delivered_is_never_removed
        a_purge_is_bounded_and_is_repeated_until_nothing_is_left
    }
    dedupe {
        a_second_enqueue_is_answered_with_the_first_id
        a_key_repeated_within_a_call_is_one_row
        a_key_repeated_within_a_transaction_is_one_row
        new_and_known_keys_may_be_mixed_in_a_call
        a_key_belongs_to_its_namespace_and_topic
        messages_without_a_key_are_never_duplicates
        a_rolled_back_key_is_free
        of_many_transactions_in_a_race_one_writes_the_row
        a_race_is_decided_by_the_row_where_there_is_no_window
        races_for_several_keys_in_any_order_do_not_deadlock
        the_second_wins_when_the_first_rolls_back
        the_second_is_told_the_first_id_when_the_first_commits
    }
    locked {
        a_locked_row_is_busy_and_its_neighbours_are_settled
        a_locked_row_is_neither_renewed_nor_lost
        a_lock_on_one_row_in_flight_stops_no_other_and_repeats_nothing
        a_published_message_whose_row_is_locked_is_written_when_the_lock_is_gone
    }
    locked_table {
        verdicts_and_renewals_are_busy_and_nothing_is_lost
        a_claim_does_not_wait_for_long_and_says_why
        a_relay_that_stops_says_that_it_was_the_database_that_did_not_answer
    }
    concurrency {
        many_unordered_workers_never_hold_a_row_twice
        concurrent_claims_do_not_wait_for_each_other
    }
}

/// Proves B1, B6.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_goes_through_its_life_in_the_columns_it_has() {
    let place = Place::shipped("usage", 2).await;
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
    assert_eq!(second, [Enqueued::Before(first[0].id())]);
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
    };
    assert_eq!(place.store.settle(&[failed]).await.unwrap().lost, []);
    assert_eq!(place.text(row).await, format!("{begun} dead 1 t t t no"));
    assert_eq!(place.store.show(message.id).await.unwrap().unwrap().state, State::Dead);
    place.dispose().await;
}
