//! Requests to brokers that may be slow to answer. The tests of all crates that create topics share this file.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicResult};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};

/// A cluster that has much else to do needs a while; one that needs so long has failed.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Creates a topic. That it exists already is the answer to a request that the client has repeated, because the answer to
/// the first took too long.
pub async fn create_topic(admin: &AdminClient<DefaultClientContext>, topic: &NewTopic<'_>) {
    let options = options();
    let create = async || admin.create_topics([topic], &options).await;
    let created = answer(create).await;
    assert!(
        matches!(created, Ok(_) | Err((_, Code::TopicAlreadyExists))),
        "{created:?}"
    );
}

pub fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)))
}

/// What came of a request about one topic, which is made again as long as the brokers do not answer in time. They may have
/// done it nevertheless.
pub async fn answer(mut request: impl AsyncFnMut() -> KafkaResult<Vec<TopicResult>>) -> TopicResult {
    let begun = Instant::now();
    loop {
        let answer = match request().await {
            Err(KafkaError::AdminOp(Code::OperationTimedOut | Code::RequestTimedOut)) => None,
            answers => Some(answers.unwrap().remove(0)),
        };
        match answer {
            Some(answer) if !matches!(answer, Err((_, Code::RequestTimedOut))) => return answer,
            late => assert!(begun.elapsed() < LONGEST_WAIT, "{late:?}"),
        }
    }
}
