//! What protects a consumer: time limits, and patience with servers that are unavailable.

pub(crate) mod failpoint;
mod limited_inbox;
mod outage;

pub(crate) use self::limited_inbox::LimitedInbox;
pub(crate) use self::outage::Outage;
