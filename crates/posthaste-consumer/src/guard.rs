//! What protects a consumer: time limits, and retries against servers that are unavailable.

pub(crate) mod failpoint;
mod limited_inbox;
mod retry_logger;

pub(crate) use self::limited_inbox::LimitedInbox;
pub(crate) use self::retry_logger::RetryLogger;
