//! The claim that serves any table with leases passes the conformance suite too, on Posthaste's own tables.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/own.rs"]
mod own;
mod support;

use support::{fresh_schema, pool};

posthaste_testkit::conformance_suite!(own::Pg<false>);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<own::Pg<false>>());
}
