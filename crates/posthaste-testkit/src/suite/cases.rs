//! The list of all cases with what they need, and the macros that turn it into tests.

use crate::table::Need;

/// Runs the conformance suite on a [`Backend`](crate::Backend): one test per case, in modules named as the suite's, so
/// that the runner shows `claim::an_expired_lease_is_reclaimed`. A case that is not for the backend's table passes with a
/// line that says so. The calling crate needs `tokio` with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! conformance_suite {
    ($fixture:ty) => {
        $crate::__conformance_cases! { [$crate::__conformance_tests] [$fixture] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ([$fixture:ty] $($module:ident $([$($common:ident)*])? { $($case:ident $([$($need:ident)*])?)* })*) => {$(
        mod $module {
            #[allow(unused_imports, reason = "the fixture may be named by a path")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(stringify!($module), "::", stringify!($case));
                    let case = async |backend: &<$fixture as $crate::Fixture>::Backend| $crate::suite::$module::$case(backend).await;
                    $crate::suite::run::<$fixture>(name, case).await;
                }
            )*
        }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ([$($consumer:tt)*] [$($argument:tt)*]) => {
        $($consumer)*! { [$($argument)*]
            enqueue {
                a_new_row_is_pending_due_and_unleased [Queue ExactStart]
                rows_of_one_call_keep_its_order_whatever_their_ids_are [Key GivenIds]
                rows_of_a_later_call_come_behind_those_of_an_earlier_one [Key GivenIds]
                a_rollback_leaves_neither_message_nor_business_row
                a_dropped_transaction_is_a_rollback
                a_commit_leaves_both_message_and_business_row
                an_uncommitted_message_is_not_claimed [ConcurrentWriters]
                a_transaction_that_commits_late_is_not_overlooked [ConcurrentWriters]
                every_field_comes_back_as_it_was_given [EveryField]
                absent_fields_stay_absent_and_defaults_are_filled_in [EveryField]
                bytes_of_any_kind_survive [Topic AnyBytes Hash]
                a_payload_changed_in_the_table_no_longer_matches_its_hash [Hash]
                a_thousand_messages_of_one_call_keep_their_order [Key]
                an_empty_call_writes_nothing
                the_same_id_again_is_the_same_event [GivenIds]
                a_foreign_dedupe_key_is_refused_and_the_transaction_goes_on [DedupeKey Tenant]
                a_bad_message_is_refused_before_any_sql_runs [EveryField]
                a_scheduled_message_waits_for_its_time [NotBefore FineTimes]
                a_time_in_the_past_is_now [NotBefore ExactStart]
                a_producer_without_a_transaction_is_served_too [DedupeKey]
            }
            claim {
                rows_come_by_sequence [Key]
                no_more_than_the_limit_is_taken [Leases]
                an_empty_outbox_gives_nothing
                no_more_than_the_bytes_are_taken_but_always_one_row [AnyBytes]
                a_row_says_which_worker_has_it [Leases LockedBy]
                a_reclaimed_row_says_which_worker_has_it_now [Expiry LockedBy]
                a_claim_leases_the_row_and_counts_the_attempt [Expiry CountedClaims UpdatedAt]
                a_leased_row_is_not_claimed_again [Key Leases]
                an_expired_lease_is_reclaimed [Expiry CountedClaims]
                an_expired_lease_is_reclaimed_without_order_too [Key Expiry WrittenLeases]
                reclaimed_rows_are_never_mixed_with_others [Expiry WrittenLeases]
                fewer_rows_are_risked_each_time_a_worker_vanishes [Expiry CountedClaims]
                a_poison_message_dies_and_takes_no_neighbour_along [Expiry CountedClaims]
                a_crash_on_the_last_attempt_ends_dead_through_the_claim [Key Expiry CountedClaims]
                a_row_without_attempts_left_is_not_claimed [Attempts Schedule RelayLimit]
                a_retry_is_not_claimed_before_its_time [Attempts Schedule]
                a_relay_serves_only_its_namespace [Namespace]
                names_that_differ_in_spaces_or_case_are_different [Namespace Topic Tenant Leases]
                a_relay_may_be_limited_to_topics [Topic Key Parts]
                a_relay_may_be_limited_to_a_tenant [Tenant Parts]
                what_a_relay_does_not_serve_it_does_not_reclaim [Tenant Parts Expiry CountedClaims]
                the_store_says_that_all_is_well
            }
            sequence {
                a_row_is_claimed_with_the_number_it_is_listed_with
                numbers_go_up_in_the_order_of_inserts [Key Sequence]
                a_row_that_is_tried_again_keeps_its_number [Key LastingSequence Schedule]
                a_row_whose_worker_vanished_keeps_its_number [Key Sequence Expiry]
                a_publisher_is_told_the_number_also_when_it_is_asked_again [Key LastingSequence Schedule]
            }
            order [Key] {
                a_run_of_one_key_is_claimed_together_in_order
                a_key_in_flight_gives_out_nothing_more
                a_key_in_flight_gives_out_nothing_that_was_replayed_either [Leases]
                equal_keys_of_other_topics_and_namespaces_are_other_lanes [Namespace Topic Leases]
                rows_without_a_key_wait_for_nobody [Leases Schedule]
                a_failed_head_stops_its_key_and_no_other [Schedule]
                a_scheduled_row_holds_back_what_follows_and_nothing_else [NotBefore]
                a_scheduled_row_that_is_due_does_not_overtake_earlier_ones [NotBefore]
                scheduled_and_other_rows_of_a_key_go_by_sequence [NotBefore]
                a_deep_backlog_that_is_held_back_hides_nothing [Schedule]
                a_replayed_row_goes_before_a_follower_that_waits [Schedule]
                an_expired_row_goes_before_what_follows_it [Expiry WrittenLeases]
                a_reclaimed_part_of_a_run_holds_back_the_rest [Expiry CountedClaims]
                a_failed_row_is_not_overtaken_by_a_follower_whose_worker_vanished [Expiry Schedule]
                a_released_row_is_not_overtaken_by_a_follower_whose_worker_vanished [Expiry]
                a_released_row_keeps_its_place
                a_dead_head_is_skipped_by_default
                a_dead_head_may_block_its_key_until_it_is_replayed
                a_dead_head_may_block_its_key_until_it_is_discarded
                a_blocking_dead_row_holds_nothing_that_comes_before_it
                a_blocking_dead_head_also_holds_what_its_worker_left [Expiry]
                topics_may_have_the_other_policy [Topic]
                a_dead_row_without_a_key_blocks_nothing
                a_hot_key_does_not_starve_the_others [Leases Schedule]
                without_order_keys_are_ignored [Schedule]
            }
            settle {
                a_delivered_row_is_done [Expiry CountedClaims UpdatedAt DeliveredAt]
                a_delivered_row_takes_no_further_verdict
                a_retry_keeps_the_error_and_waits_without_a_lease [Leases CountedClaims Schedule UpdatedAt]
                the_last_error_outlives_a_later_delivery [Queue Schedule]
                a_retry_without_delay_still_holds_back_its_key [Key Schedule]
                a_dead_row_keeps_its_error_and_is_not_claimed [Leases CountedClaims UpdatedAt]
                a_released_row_is_as_if_it_had_not_been_claimed
                a_released_retry_refunds_one_attempt_only [Attempts Schedule]
                a_postponed_row_waits_with_its_error_and_keeps_its_attempts [Attempts Schedule UpdatedAt]
                an_error_with_any_character_is_kept
                a_long_error_is_cut_to_its_column [ShortErrors]
                a_stale_token_changes_nothing_and_is_reported_lost [Expiry]
                a_token_does_not_come_back_with_the_attempt_count [Leases]
                unknown_rows_and_tokens_are_reported_lost
                a_late_verdict_counts_while_nobody_else_has_the_row [Leases]
                each_message_of_a_batch_has_an_outcome_of_its_own [Expiry CountedClaims Schedule]
                no_verdicts_are_no_work
                a_very_long_delay_is_kept [Schedule UpdatedAt]
            }
            lease [Leases] {
                an_extended_lease_holds_longer [Expiry CountedClaims UpdatedAt]
                an_extended_lease_runs_out_too [Expiry]
                a_lost_lease_cannot_be_extended [Expiry]
                an_extension_names_the_leases_that_are_still_held
            }
            sweep {
                a_row_whose_worker_vanished_on_the_last_attempt_is_swept [Expiry CountedClaims UpdatedAt]
                waiting_rows_above_a_lowered_limit_are_swept [Key CountedClaims Schedule]
                waiting_rows_above_a_lowered_limit_are_left_to_the_sweep [Key CountedClaims Schedule]
                a_live_lease_is_not_swept [Leases]
                rows_with_attempts_left_are_not_swept [Leases Schedule]
                a_sweep_stays_in_its_scope [Namespace Topic Tenant Parts Expiry CountedClaims]
                a_fresh_row_above_a_lowered_limit_is_swept [Expiry CountedClaims]
            }
            admin {
                every_condition_of_a_filter_must_hold [Namespace Topic Tenant TextKey]
                a_list_goes_on_where_the_last_page_ended
                an_unknown_id_shows_nothing
                the_counts_are_those_of_the_namespace [Namespace Leases Schedule]
                a_replayed_row_begins_again_at_its_old_place [Key Leases CountedClaims Schedule UpdatedAt]
                only_dead_rows_are_replayed_or_discarded
                a_replay_goes_past_no_locked_row [RowLock]
                dead_rows_are_replayed_by_filter_and_number [Topic]
                a_filter_for_another_state_replays_and_discards_nothing
                of_two_operators_who_replay_a_row_one_gets_it
                of_a_replay_and_a_discard_one_gets_the_row
                a_discarded_row_is_gone [Queue]
            }
            purge [Queue] {
                delivered_rows_are_removed_once_they_are_old
                what_a_purge_would_remove_is_counted_and_stays [DedupeWindow]
                the_age_counts_from_the_delivery [DeliveredAt]
                a_row_that_was_not_delivered_is_never_removed [Leases]
                dead_rows_are_removed_only_by_an_age_of_their_own [Leases UpdatedAt]
                the_rows_of_another_namespace_are_kept [Namespace]
                a_purge_is_bounded_and_is_repeated_until_nothing_is_left
            }
            janitor [Queue] {
                of_many_relays_one_looks_after_the_table
                a_janitor_that_leaves_is_followed_at_once
                gauges_are_what_is_there [Leases]
                gauges_name_the_topics_with_the_most_first [Topic]
            }
            dedupe [DedupeKey] {
                a_second_enqueue_is_answered_with_the_first_id
                a_key_repeated_within_a_call_is_one_row
                a_key_repeated_within_a_transaction_is_one_row
                the_same_event_twice_in_a_transaction_is_one_row
                new_and_known_keys_may_be_mixed_in_a_call
                a_key_belongs_to_its_namespace_and_topic [Namespace Topic]
                messages_without_a_key_are_never_duplicates
                a_rolled_back_key_is_free
                of_many_transactions_in_a_race_one_writes_the_row
                a_race_is_decided_by_the_row_where_there_is_no_window
                races_for_several_keys_in_any_order_do_not_deadlock
                the_second_wins_when_the_first_rolls_back [ConcurrentWriters]
                the_second_is_told_the_first_id_when_the_first_commits [ConcurrentWriters]
                a_key_is_held_within_its_window_after_its_row_was_purged [DedupeWindow]
                a_key_is_free_after_its_window_and_its_row [DedupeWindow]
                a_key_is_free_after_its_window_without_another_purge [DedupeWindow]
                a_key_is_held_beyond_its_window_while_its_row_is_there [DedupeWindow]
                a_purge_of_keys_is_bounded_too [DedupeWindow]
                the_same_event_again_after_its_row_was_purged_is_known [DedupeWindow]
            }
            relay {
                everything_that_was_committed_is_delivered_once_and_in_order [Key]
                relays_that_run_at_the_same_time_share_the_work [Key]
                a_failing_key_stops_only_itself [TextKey Attempts Schedule]
                a_failure_in_the_middle_of_a_run_is_not_overtaken [Key Schedule]
                a_lost_acknowledgement_delivers_again_under_the_same_id [Schedule]
                a_message_whose_bytes_were_changed_is_dead_and_never_published [Key Hash]
                a_message_that_always_fails_is_dead_after_its_last_attempt [CountedClaims Schedule]
                a_refused_head_is_dead_at_once_and_the_policy_decides_about_the_rest [Topic Key Attempts]
                a_publisher_that_forgets_to_answer_is_asked_again [Schedule]
                a_publisher_that_panics_does_not_end_the_relay [Schedule]
                a_publisher_that_hangs_is_given_up [Schedule]
                a_relay_delivers_only_what_is_in_its_scope [Namespace Topic Tenant Parts]
                a_drain_says_how_much_was_due_and_is_not_delivered [Key Schedule]
                a_drain_gives_up_what_waits_above_a_lowered_limit [Key Attempts Schedule]
                the_store_can_be_driven_without_a_relay [Leases Schedule]
            }
            running [Leases Expiry Engine] {
                a_slow_publication_keeps_its_lease [WrittenLeases]
                an_outcome_that_comes_after_the_lease_is_counted_and_changes_nothing
                a_relay_that_stops_gives_back_what_it_has_not_handed_over
                a_relay_that_must_stop_leaves_unanswered_messages_to_their_lease
                the_next_batch_is_claimed_while_this_one_is_in_flight_up_to_a_bound
                bytes_in_flight_are_bounded_too
            }
            draining {
                a_drain_says_how_many_stand_behind_one_that_waits [Key Schedule]
                a_drain_says_how_many_another_relay_has [Leases]
                a_drain_is_complete_though_messages_wait_for_their_time [NotBefore]
                a_drain_of_some_topics_says_nothing_of_others [Topic Parts]
            }
            unclaimable [Queue] {
                a_refused_claim_stops_nobody_but_its_key [Key Leases]
                a_refused_claim_stops_nobody_where_keys_are_ignored [Key Leases]
                a_refused_retry_stops_nobody_but_its_key [Key Leases Schedule]
                a_row_of_a_vanished_worker_whose_claim_is_refused_stops_nobody_but_its_key [Key Expiry]
                what_is_left_out_hides_nothing [Key Leases]
                rows_that_are_all_refused_stop_nobody_behind_them [Leases]
                a_relay_delivers_all_but_a_refused_row_and_that_when_it_is_taken [Key Leases Engine]
                a_drain_delivers_all_but_a_refused_row_and_says_so [Leases]
            }
            refused [Engine] {
                a_refused_verdict_stops_no_other_and_its_message_is_published_once
                a_drain_ends_with_an_error_if_a_verdict_is_refused
                a_failure_whose_verdict_is_refused_is_not_overtaken [Key Attempts]
                while_every_verdict_is_refused_little_is_published
            }
            circuit [Engine] {
                while_the_circuit_is_open_nothing_is_claimed_and_no_attempt_is_used [Queue Attempts]
                after_the_open_time_exactly_three_messages_are_tried [Queue Leases]
                one_failed_trial_opens_the_circuit_again [Attempts]
                no_message_dies_of_a_long_outage
                one_message_that_breaks_the_connection_does_not_stop_the_others
                a_broker_that_comes_back_gets_everything_in_order [Key]
                failures_that_are_not_the_brokers_absence_never_open_the_circuit [CountedClaims]
                a_broker_that_does_not_answer_opens_the_circuit [Queue Attempts]
                a_relay_stops_while_the_circuit_is_open [Attempts]
                draining_ends_with_an_error_when_the_broker_is_unavailable
                a_destination_that_is_unavailable_stops_only_its_own_messages [Topic Key]
                a_broker_that_throttles_is_waited_for_and_costs_no_attempt
                the_only_message_does_not_die_of_an_outage
            }
            registry [Registry] {
                a_beat_puts_a_relay_on_the_list
                a_later_beat_keeps_the_start_and_brings_the_rest_up_to_date
                relays_are_listed_by_namespace_oldest_first
                silence_is_measured_by_the_databases_clock
                a_relay_that_leaves_is_off_the_list
                a_relay_not_heard_for_a_day_is_forgotten
                a_running_relay_is_on_the_list_with_its_circuit_until_it_stops
            }
            leadership [Registry] {
                of_many_that_ask_at_the_same_time_one_leads
                a_leader_that_asks_again_in_time_goes_on
                a_lead_that_ran_out_goes_to_the_next_who_asks
                a_leader_that_leaves_is_followed_at_once
                only_the_leader_can_end_its_lead
                every_namespace_has_a_leader_of_its_own
                the_list_shows_who_leads
                of_many_relays_one_is_active_and_the_next_takes_over
                a_relay_that_lost_the_lead_claims_nothing_more
                a_relay_that_may_not_be_active_does_not_drain
            }
            locked [Queue RowLock Leases] {
                a_locked_row_is_busy_and_its_neighbours_are_settled
                a_locked_row_is_neither_renewed_nor_lost
                a_locked_row_is_left_alone_by_claims_and_by_those_who_clean_up [Key Expiry]
                a_lock_on_one_row_in_flight_stops_no_other_and_repeats_nothing [Expiry Engine]
                a_published_message_whose_row_is_locked_is_written_when_the_lock_is_gone [Engine]
            }
            locked_table [Queue TableLock Leases] {
                verdicts_and_renewals_are_busy_and_nothing_is_lost
                a_claim_does_not_wait_for_long_and_says_why
                a_relay_writes_what_it_published_when_the_lock_is_gone [Engine]
                a_relay_that_stops_has_its_verdicts_written_if_the_lock_goes_in_time [Engine]
                a_relay_that_stops_says_that_it_was_the_database_that_did_not_answer [Engine]
            }
            inbox [Inbox] {
                a_delivery_is_handled_once
                two_consumers_are_independent
                a_rollback_forgets_both_the_effect_and_the_record
                a_delivery_repeated_within_a_transaction_is_handled_once
                of_concurrent_deliveries_one_is_handled
                a_waiting_delivery_is_handled_when_the_first_rolls_back [ConcurrentWriters]
                a_waiting_delivery_is_skipped_when_the_first_commits [ConcurrentWriters]
                a_tolerated_error_never_passes_for_a_handled_delivery
                a_transaction_that_was_rolled_back_never_passes_for_a_handled_delivery
                marks_may_be_nested
                long_keys_are_told_apart
                a_purge_keeps_young_records
                a_purge_keeps_the_records_of_other_consumers
                a_purge_of_records_is_bounded
            }
            mapped [Mapped] {
                a_row_with_a_label_that_the_map_does_not_know_is_left_out
                a_row_that_does_not_say_when_it_was_made_is_new
                a_row_that_was_locked_and_is_given_back_keeps_its_label [Locks Schedule]
                a_postponed_row_has_the_label_of_one_that_waits [Schedule]
                only_what_died_has_a_letter [DeadLetters Schedule]
                relays_cannot_agree_on_a_leader_where_there_is_no_table_for_it
            }
            concurrency {
                many_ordered_workers_keep_the_order_of_every_key [Key Schedule]
                many_unordered_workers_never_hold_a_row_twice [Schedule]
                concurrent_claims_do_not_wait_for_each_other [ConcurrentClaims]
                of_many_workers_that_want_an_expired_row_one_gets_it [Key Expiry]
                producers_and_relays_at_once_lose_nothing [Key Schedule]
            }
        }
    };
}

/// A case and what it needs of the table it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, with its module.
    pub name: &'static str,
    /// All that it needs.
    pub needs: Vec<Need>,
}

macro_rules! list {
    ([] $($module:ident $([$($common:ident)*])? { $($case:ident $([$($need:ident)*])?)* })*) => {{
        let mut cases = Vec::new();
        $(
            let common: &[Need] = &[$($(Need::$common),*)?];
            $(cases.push(Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                needs: [common, &[$($(Need::$need),*)?]].concat(),
            });)*
        )*
        cases
    }};
}

/// All cases.
pub fn cases() -> Vec<Case> {
    __conformance_cases! { [list] [] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_case_is_on_the_list_and_says_what_it_is_for() {
        let mut written = BTreeSet::new();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/suite")).unwrap() {
            let path = entry.unwrap().path();
            let module = path.file_stem().unwrap().to_string_lossy().into_owned();
            let source = fs::read_to_string(&path).unwrap();
            for item in source.split("\n\n") {
                let Some((heading, signature)) = item.split_once("\npub async fn ") else {
                    continue;
                };
                let Some((case, _)) = signature.split_once("<B: Backend>(b: &B)") else {
                    continue;
                };
                assert!(heading.contains("/// "), "{module}::{case} does not say what it is for");
                written.insert((module.clone(), case.to_owned()));
            }
        }
        let listed: BTreeSet<_> = super::cases()
            .into_iter()
            .map(|case| case.name.split_once("::").expect("a module and a name"))
            .map(|(module, case)| (module.to_owned(), case.to_owned()))
            .collect();
        let unlisted: Vec<_> = written.difference(&listed).collect();
        assert!(unlisted.is_empty(), "not on the list: {unlisted:?}");
        assert_eq!(written, listed);
    }
}
