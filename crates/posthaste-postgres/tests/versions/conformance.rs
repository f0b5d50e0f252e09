//! PostgreSQL passes the conformance suite.

use crate::support::native::Pg;

posthaste_testkit::conformance_suite!(Pg<true>);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<Pg<true>>());
}
