//! Settings of a consumer.

mod builder;
mod check;
mod settings;

pub use self::check::InvalidConfig;
pub(crate) use self::check::check;
pub use self::settings::{Assignment, ConsumerConfig, OffsetReset, Tombstones, TooLarge, Unhandled};

#[cfg(test)]
mod tests;
