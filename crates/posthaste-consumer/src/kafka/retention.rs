//! Whether the inbox remembers for as long as the brokers can deliver again.

use std::fmt;
use std::time::Duration;

use posthaste_kafka::error::{Cause, explain, explain_error};
use posthaste_kafka::{Connection, dead_letter};
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::context::LoggingContext;
use super::properties::shared;
use crate::config::ConsumerConfig;

const CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// The wait after a check that brokers did not answer.
const CHECK_RETRY_DELAY: Duration = Duration::from_mins(1);

/// How long the brokers get to answer.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A topic that brokers keep for longer than the inbox remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionGap {
    /// The topic, or its dead-letter topic.
    pub topic: String,
    /// How long its events can be delivered again; without a limit if `None`.
    pub kept: Option<Duration>,
    /// How long the inbox remembers them.
    pub remembered: Duration,
}

impl RetentionGap {
    /// Whether it is a dead-letter topic, whose events come again only when an operator replays them.
    pub fn is_dead_letters(&self) -> bool {
        dead_letter::origin_of(&self.topic).is_some()
    }
}

impl fmt::Display for RetentionGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self
            .kept
            .map_or_else(|| "forever".to_owned(), |kept| format!("for {}", human(kept)));
        let (topic, remembered) = (&self.topic, human(self.remembered));
        write!(
            f,
            "topic {topic} is kept {kept}, but the inbox forgets after {remembered}: what is replayed later is handled \
             again; raise inbox_retention, or lower retention.ms of {topic}"
        )
    }
}

fn human(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

/// Compares how long brokers keep topics, and their dead-letter topics, with how long the inbox remembers. Topics that do
/// not exist are passed over. Fails with a sentence that says what to do.
pub async fn retention_gaps(
    connection: &Connection,
    topics: &[String],
    inbox_retention: Duration,
) -> Result<Vec<RetentionGap>, String> {
    let properties = shared(connection)
        .client_config(&[])
        .map_err(|error| error.to_string())?;
    let client: AdminClient<LoggingContext> = properties
        .create_with_context(LoggingContext)
        .map_err(|error| explain_error(&error, None).text)?;
    let names: Vec<String> = topics
        .iter()
        .flat_map(|topic| [topic.clone(), dead_letter::topic_for(topic)])
        .collect();
    let resources: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let options = AdminOptions::new().request_timeout(Some(ADMIN_TIMEOUT));
    let answers = client
        .describe_configs(&resources, &options)
        .await
        .map_err(|error| explain_error(&error, None).text)?;
    let mut gaps = Vec::new();
    for answer in answers {
        match answer {
            Ok(resource) => gaps.extend(gap(&resource, inbox_retention)),
            Err(code) if explain(code, None).cause == Cause::UnknownTopic => {}
            Err(code) => return Err(explain(code, None).text),
        }
    }
    Ok(gaps)
}

fn gap(resource: &ConfigResource, remembered: Duration) -> Option<RetentionGap> {
    let OwnedResourceSpecifier::Topic(topic) = &resource.specifier else {
        return None;
    };
    let setting = |name: &str| resource.get(name).and_then(|entry| entry.value.as_deref());
    let deletes = setting("cleanup.policy").is_none_or(|policy| policy.split(',').any(|part| part.trim() == "delete"));
    // -1 is no limit.
    let millis = setting("retention.ms")?.parse::<i64>().ok()?;
    let kept = u64::try_from(millis)
        .ok()
        .filter(|_| deletes)
        .map(Duration::from_millis);
    kept.is_none_or(|kept| kept > remembered).then(|| RetentionGap {
        topic: topic.clone(),
        kept,
        remembered,
    })
}

/// Says, at the start and whenever it changes, where brokers can replay what the inbox has forgotten.
pub(crate) async fn watch(config: ConsumerConfig, stop: CancellationToken) {
    let mut known: Vec<RetentionGap> = Vec::new();
    loop {
        let asking = retention_gaps(&config.connection, &config.topics, config.inbox_retention);
        let wait = match stop.run_until_cancelled(asking).await {
            Some(Ok(gaps)) => {
                gaps.iter().filter(|gap| !known.contains(gap)).for_each(report);
                known = gaps;
                CHECK_INTERVAL
            }
            Some(Err(error)) => {
                // Brokers that are unavailable are reported elsewhere; a missing right is no reason to disturb anybody.
                tracing::debug!(error, "the topics' retention could not be compared with the inbox's");
                CHECK_RETRY_DELAY
            }
            None => return,
        };
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            return;
        }
    }
}

fn report(gap: &RetentionGap) {
    // Dead letters come again only when an operator asks for it.
    if gap.is_dead_letters() {
        tracing::info!(topic = gap.topic, "{gap}");
    } else {
        tracing::warn!(topic = gap.topic, "{gap}");
    }
}
