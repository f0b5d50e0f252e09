//! PostgreSQL passes the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/own.rs"]
mod own;
mod support;

use support::{fresh_schema, pool};

posthaste_testkit::conformance_suite!(own::Pg<true>);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<own::Pg<true>>());
}
