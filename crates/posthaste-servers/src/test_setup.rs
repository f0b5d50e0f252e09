//! What the unit tests share.

/// Whether the test runner said that there is no PostgreSQL on this machine.
pub(crate) fn left_out() -> bool {
    std::env::var("POSTHASTE_TEST_WITHOUT").is_ok_and(|list| list.split(',').any(|server| server == "postgres"))
}
