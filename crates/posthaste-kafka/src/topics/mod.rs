//! Topics as they were declared: what differs on the cluster, and how it is made so.
//!
//! Nothing is ever deleted. Settings are changed, missing topics are created; what would break the order of a key or
//! let Kafka delete records is done only on demand, and what only an operator can do is said along with how.
//!
//! ```no_run
//! # async fn example() -> Result<(), posthaste_kafka::topics::TopicsError> {
//! use posthaste_kafka::Connection;
//! use posthaste_kafka::topics::{self, DeclaredTopics, TopicSpec};
//!
//! let declared = DeclaredTopics::named(["order-events", "stock-events"]).defaults(TopicSpec {
//!     replication_factor: Some(3),
//!     min_insync_replicas: Some(2),
//!     ..TopicSpec::default()
//! });
//! topics::ensure(&Connection::to("127.0.0.1:9092"), &declared).await?;
//! # Ok(())
//! # }
//! ```

mod admin;
mod apply;
mod compare;
mod error;
mod plan;
mod refusal;
mod report;
mod retention;
mod room;
mod spec;
mod validate;

#[cfg(test)]
mod tests;

pub use self::admin::TopicAdmin;
pub use self::apply::ApplyOptions;
pub use self::error::TopicsError;
pub use self::plan::{Change, Difference, Plan, PlannedTopic, TopicState};
pub use self::report::{Applied, Outcome, Report};
pub use self::retention::Retention;
pub use self::spec::{DeclaredTopics, TopicSpec, WantedTopic};
pub use self::validate::InvalidTopics;
use crate::connection::Connection;

/// Creates and changes topics as declared, for a program that brings its topics along.
///
/// It fails if a topic could not be made. What differs and is not changed without being told to is no failure, since
/// the program can run on it: it is logged as a warning.
pub async fn ensure(connection: &Connection, declared: &DeclaredTopics) -> Result<Report, TopicsError> {
    let admin = TopicAdmin::new(connection)?;
    let plan = admin.plan(declared).await?;
    let report = admin.apply(&plan, ApplyOptions::default()).await?;
    let failures: Vec<_> = report
        .failures()
        .map(|(topic, reason)| format!("Kafka topic {topic}: {reason}"))
        .collect();
    if !failures.is_empty() {
        return Err(TopicsError::Refused(failures.join("; ")));
    }
    for applied in &report.topics {
        for left in &applied.left {
            tracing::warn!(
                topic = applied.topic,
                field = left.field,
                declared = left.declared,
                found = left.found,
                "the topic is not as declared; see `posthaste topics plan`"
            );
        }
    }
    Ok(report)
}
