//! The places where a process may die, by name, so that crash tests can make it die there.

/// Ends the process here if a crash test asked for it (`FAILPOINTS="after_handler_commit=return"`). Without the feature
/// `failpoints` this is nothing.
#[cfg_attr(
    not(feature = "failpoints"),
    allow(
        unused_variables,
        reason = "the macro below expands to nothing, unless another crate wants failpoints"
    )
)]
pub(crate) fn pass(point: &'static str) {
    fail::fail_point!(point, |_| std::process::abort());
}

/// Fails here if a test asked for it (`FAILPOINTS="first_position=1*return"`).
#[cfg_attr(
    not(feature = "failpoints"),
    allow(
        unused_variables,
        clippy::unnecessary_wraps,
        reason = "the macro below expands to nothing, unless another crate wants failpoints"
    )
)]
pub(crate) fn fail<E>(point: &'static str, error: impl FnOnce() -> E) -> Result<(), E> {
    fail::fail_point!(point, |_| Err(error()));
    Ok(())
}
