//! The statements of a [`Mark`], in every dialect that has savepoints.

use posthaste_core::Mark;

/// The statement that sets it.
pub fn set(mark: Mark) -> String {
    format!("savepoint {mark}")
}

/// The statement that removes it, and fails unless the transaction in which it was set is open and well.
pub fn release(mark: Mark) -> String {
    format!("release savepoint {mark}")
}
