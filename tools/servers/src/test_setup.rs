//! What the unit tests share.

/// Whether the test runner said that there is no such server on this machine.
pub(crate) fn left_out(server: &str) -> bool {
    std::env::var("POSTHASTE_TEST_WITHOUT").is_ok_and(|list| list.split(',').any(|missing| missing == server))
}
