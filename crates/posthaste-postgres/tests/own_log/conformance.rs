//! The log passes the conformance suite, by what it has.

use crate::backend::NativeLog;

posthaste_testkit::conformance_suite!(NativeLog);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<NativeLog>());
}
