//! The places where a process may die, by name, so that crash tests can make it die there.

use posthaste_core::publisher::Delivery;

/// Ends the process here if a crash test asked for it (`FAILPOINTS="after_publish=1%return"`). Without the feature
/// `failpoints` this is nothing.
#[cfg_attr(
    not(feature = "failpoints"),
    expect(unused_variables, reason = "the macro below expands to nothing")
)]
pub(crate) fn pass(point: &'static str) {
    fail::fail_point!(point, |_| std::process::abort());
}

/// Ends the process if a crash test asked for messages of the topic `poison` to be deadly and one of them is here.
#[cfg_attr(
    not(feature = "failpoints"),
    expect(unused_variables, reason = "the macro below expands to nothing")
)]
pub(crate) fn swallow(deliveries: &[Delivery]) {
    fail::fail_point!(
        "poison",
        deliveries.iter().any(|delivery| delivery.message.topic == "poison"),
        |_| std::process::abort()
    );
}
