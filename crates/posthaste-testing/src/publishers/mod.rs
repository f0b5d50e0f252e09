//! Publishers that need no broker.

mod faulty;
mod null;
mod recording;
mod rule;

pub use faulty::FaultyPublisher;
pub use null::NullPublisher;
pub use recording::RecordingPublisher;
pub use rule::{Fault, Rule};
