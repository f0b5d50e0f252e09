//! The list of all cases, and the macros that turn it into tests.

/// Runs the conformance suite on a [`Backend`](crate::Backend): one test per case, in modules named as the suite's, so
/// that the runner shows `claim::an_expired_lease_is_reclaimed`. The calling crate needs `tokio` with `macros` and
/// `rt-multi-thread`.
#[macro_export]
macro_rules! conformance_suite {
    ($backend:ty) => {
        $crate::__conformance_cases! { __conformance_tests [$backend] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ([$backend:ty] $($module:ident { $($case:ident)* })*) => {$(
        mod $module {
            #[allow(unused_imports, reason = "the backend may be named by a path")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    $crate::suite::run(async |backend: &$backend| $crate::suite::$module::$case(backend).await).await;
                }
            )*
        }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($consumer:ident [$($argument:tt)*]) => {
        $crate::$consumer! { [$($argument)*]
            enqueue {
                a_new_row_is_pending_due_and_unleased
                a_rollback_leaves_neither_message_nor_business_row
                a_dropped_transaction_is_a_rollback
                a_commit_leaves_both_message_and_business_row
                an_uncommitted_message_is_not_claimed
                a_transaction_that_commits_late_is_not_overlooked
                every_field_comes_back_as_it_was_given
                absent_fields_stay_absent_and_defaults_are_filled_in
                bytes_of_any_kind_survive
                a_payload_changed_in_the_table_no_longer_matches_its_hash
                a_thousand_messages_of_one_call_keep_their_order
                an_empty_call_writes_nothing
                the_same_id_again_is_the_same_event
                a_foreign_dedupe_key_is_refused_and_the_transaction_goes_on
                a_bad_message_is_refused_before_any_sql_runs
                a_scheduled_message_waits_for_its_time
                a_time_in_the_past_is_now
                a_producer_without_a_transaction_is_served_too
            }
        }
    };
}

#[cfg(test)]
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_names {
    ([] $($module:ident { $($case:ident)* })*) => {
        vec![$($((stringify!($module), stringify!($case))),*),*]
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_case_is_on_the_list_and_says_what_it_proves() {
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
                assert!(
                    heading.contains("/// Proves "),
                    "{module}::{case} does not say what it proves"
                );
                written.insert((module.clone(), case.to_owned()));
            }
        }
        let listed: BTreeSet<_> = crate::__conformance_cases! { __conformance_names [] }
            .into_iter()
            .map(|(module, case): (&str, &str)| (module.to_owned(), case.to_owned()))
            .collect();
        let unlisted: Vec<_> = written.difference(&listed).collect();
        assert!(unlisted.is_empty(), "not on the list: {unlisted:?}");
        assert_eq!(written, listed);
    }
}
