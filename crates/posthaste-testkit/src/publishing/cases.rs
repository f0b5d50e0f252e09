//! The list of all cases with what they need, and the macros that turn it into tests.

use crate::counterpart::Ability;

/// Runs the publisher suite on a [`Counterpart`](crate::Counterpart): one test per case, in modules named as the suite's. A
/// case that is not for the counterpart passes with a line that says so. The calling crate needs `tokio` with `macros` and
/// `rt-multi-thread`.
#[macro_export]
macro_rules! publisher_suite {
    ($counterpart:ty) => {
        $crate::__publisher_cases! { [$crate::__publisher_tests] [$counterpart] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __publisher_tests {
    ([$counterpart:ty] $($module:ident { $($case:ident [$($need:ident)*])* })*) => {$(
        mod $module {
            #[allow(unused_imports, reason = "the counterpart may be named by a path")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(stringify!($module), "::", stringify!($case));
                    let case = async |scene: &$crate::publishing::Scene<$counterpart>| {
                        $crate::publishing::$module::$case(scene).await;
                    };
                    $crate::publishing::run(name, case).await;
                }
            )*
        }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __publisher_cases {
    ([$($consumer:tt)*] [$($argument:tt)*]) => {
        $($consumer)*! { [$($argument)*]
            order {
                lanes_side_by_side_arrive_in_order []
                after_a_failure_the_rest_of_the_lane_waits_and_other_lanes_go_on [Refuse]
                a_refusal_in_the_middle_of_a_warm_lane_is_not_overtaken [Refuse]
            }
            trouble {
                silence_ends_with_the_publishers_own_time_out [Silence]
                a_counterpart_that_died_is_published_to_again_once_it_is_back [Death]
                a_panic_fails_its_own_message_only [Panic]
                a_pause_that_passes_in_time_costs_nothing [Throttle]
                a_pause_that_is_too_long_is_reported_with_its_time [Throttle]
                a_message_that_is_too_large_is_given_up_and_its_neighbours_are_delivered [Limit]
                a_dead_destination_does_not_hold_up_a_healthy_one [Neighbour]
                a_full_counterpart_is_unavailable_and_nothing_is_torn [Full]
                a_check_finds_what_is_well_and_what_is_not [Check Death]
            }
            ending {
                what_may_not_be_sent_is_not_sent []
                what_may_no_longer_be_sent_is_not_sent []
                closing_ends_soon_also_twice_and_what_follows_opens_again []
            }
        }
    };
}

/// A case and what it needs of a counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, with its module.
    pub name: &'static str,
    /// All that it needs.
    pub needs: Vec<Ability>,
}

macro_rules! list {
    ([] $($module:ident { $($case:ident [$($need:ident)*])* })*) => {
        vec![$($(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            needs: vec![$(Ability::$need),*],
        },)*)*]
    };
}

/// All cases.
pub fn cases() -> Vec<Case> {
    __publisher_cases! { [list] [] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_case_is_on_the_list() {
        let mut written = BTreeSet::new();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/publishing")).unwrap() {
            let path = entry.unwrap().path();
            let module = path.file_stem().unwrap().to_string_lossy().into_owned();
            let source = fs::read_to_string(&path).unwrap();
            let cases = source.split("\npub async fn ").skip(1);
            let cases = cases.filter_map(|item| item.split_once("<C: Counterpart>("));
            let cases = cases.filter(|(_, rest)| rest.trim_start().starts_with("scene: &Scene<C>"));
            written.extend(cases.map(|(case, _)| format!("{module}::{case}")));
        }
        let listed: BTreeSet<_> = super::cases().iter().map(|case| case.name.to_owned()).collect();
        assert_eq!(written, listed);
    }
}
