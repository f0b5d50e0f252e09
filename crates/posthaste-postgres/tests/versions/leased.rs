//! The claim that serves any table with leases passes the conformance suite too, on Posthaste's own tables.

use crate::support::native::Pg;

posthaste_testkit::conformance_suite!(Pg<false>);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<Pg<false>>());
}
