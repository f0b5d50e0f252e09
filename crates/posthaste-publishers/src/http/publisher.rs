//! The publisher.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chrono::Utc;
use http::{HeaderName, HeaderValue};
use posthaste_core::publisher::{Batch, Capabilities, Delivery, ErrorKind, PublishError, Publisher, Receipt, Report};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::client::Client;
use super::format::{HttpFormat, Writer};
use super::options::HttpOptions;
use super::sign::Signer;
use crate::each::{EachMessage, PublishOne};
use crate::options::{InvalidOption, PublisherContext, PublisherOptions};
use crate::rounds::{InRounds, PublishRound};
use crate::template::Template;
use crate::turn::Turns;

/// Posts events to an address, in order per key and several keys at a time.
///
/// A rate limit (429 or 503 with `Retry-After`) is kept to rather than run into, and costs no attempts as long as it passes
/// within `answer_within`. An address that is gone, credentials that are refused and a receiver that is unavailable are
/// failures of the receiver and not of an event: the relay's circuit opens and everything waits.
#[derive(Clone)]
pub struct HttpPublisher(Requests);

/// How events are divided among requests.
#[derive(Clone)]
enum Requests {
    One(EachMessage<Arc<Poster>>),
    Many(InRounds<Arc<Poster>>),
}

/// Posts requests.
struct Poster {
    client: Client,
    writer: Writer,
    signer: Signer,
    headers: Vec<(HeaderName, Template)>,
    /// The address, or a variant of it that is answered when the event is stored.
    to: String,
    answer_within: Duration,
    turns: Arc<Turns>,
    /// Events that were refused for good since one was taken.
    refusals: AtomicUsize,
}

impl HttpPublisher {
    /// A publisher with these options. Connects to nothing yet: a relay may start before its receiver.
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work.
    #[expect(clippy::needless_pass_by_value, reason = "as all publishers take theirs")]
    pub fn new(options: HttpOptions) -> Result<Self, InvalidOption> {
        options.validate()?;
        let turns = Arc::new(Turns::new(
            options.effective_concurrency(),
            options.effective_answer_within(),
        ));
        let poster = Arc::new(Poster {
            client: Client::new(&options)?,
            writer: Writer::new(options.format, &options.discord)?,
            signer: options.signer()?,
            headers: options.header_templates()?,
            to: match options.format {
                HttpFormat::Discord => options.url.confirmed(),
                _ => options.url.reveal().to_owned(),
            },
            answer_within: options.effective_answer_within(),
            turns: Arc::clone(&turns),
            refusals: AtomicUsize::new(0),
        });
        Ok(Self(match options.format {
            HttpFormat::Batch => {
                let rounds = InRounds::new(poster).with_turns(turns);
                Requests::Many(rounds.max_request(options.batch.max_messages, options.batch.max_bytes))
            }
            _ => Requests::One(EachMessage::new(poster).with_turns(turns)),
        }))
    }

    fn requests(&self) -> &dyn Publisher {
        match &self.0 {
            Requests::One(each) => each,
            Requests::Many(rounds) => rounds,
        }
    }
}

impl PublisherOptions for HttpOptions {
    fn validate(&self, context: &PublisherContext) -> Result<(), InvalidOption> {
        self.clone().within(context).and_then(HttpPublisher::new).map(drop)
    }

    fn build(self, context: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption> {
        Ok(Arc::new(HttpPublisher::new(self.within(context)?)?))
    }
}

#[async_trait]
impl Publisher for HttpPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        self.requests().publish(batch, report).await;
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.requests().capabilities()
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.requests().check().await
    }
}

const NAME: &str = "http";

/// More events than this are not refused for good in a row.
const MAX_REFUSALS: usize = 10;

impl Poster {
    /// Posts these events in one request.
    async fn post(&self, deliveries: &[&Delivery]) -> Result<(), PublishError> {
        let mut content = self.writer.content(deliveries)?;
        if let Some(first) = deliveries.first() {
            let id = request_id(deliveries);
            let signed = self.signer.headers(&id, Utc::now().timestamp(), &content.body);
            content.headers.extend(signed);
            for (name, template) in &self.headers {
                let value = HeaderValue::from_str(&template.render(first, MAX_HEADER_CHARS)).map_err(|_| {
                    PublishError::permanent(format!("HTTP: the header {name} has a value that no header can carry; correct the event, or leave it out of publisher.headers"))
                })?;
                content.headers.insert(name.clone(), value);
            }
        }
        let answer = self.client.post(&self.to, content.headers, content.body).await?;
        if let Some(pause) = answer.pause() {
            self.turns.pace().pause(pause);
        }
        let outcome = answer.outcome(self.client.url().host(), self.client.redaction());
        outcome
            .inspect(|()| self.refusals.store(0, Ordering::Relaxed))
            .map_err(|error| match deliveries {
                [_] => self.reconsidered(error),
                // Which of them is refused is still to be found.
                _ => error,
            })
    }

    /// A receiver that refuses whatever it gets may have trouble of its own: an expired certificate, a wrong address
    /// behind a proxy. Then no event dies of one answer; each is tried again like after any other failure.
    fn reconsidered(&self, mut error: PublishError) -> PublishError {
        if error.kind == ErrorKind::Permanent && self.refusals.fetch_add(1, Ordering::Relaxed) >= MAX_REFUSALS {
            error.kind = ErrorKind::Transient;
            error
                .message
                .push_str("; all of the latest events were refused, so it is tried again");
        }
        error
    }

    fn gave_no_answer(&self) -> PublishError {
        self.client.unavailable("gave no answer in time")
    }

    /// Asks the receiver without posting anything. Receivers other than Discord need not know the question: that they
    /// answer at all is enough.
    async fn check_receiver(&self) -> Result<String, PublishError> {
        let asked = timeout(self.answer_within, self.client.get()).await;
        let answer = asked.unwrap_or_else(|_| Err(self.gave_no_answer()))?;
        let url = self.client.url();
        if url.is_discord() {
            answer.outcome(url.host(), self.client.redaction())?;
        }
        Ok(format!("{NAME}, {} answers {}", url.host(), answer.status()))
    }
}

/// What receivers know a request by, to drop one that they have already. Several events have an id of all of them
/// together: the next request may have the first of them together with others, and must not be taken for this one.
fn request_id<'a>(deliveries: &[&'a Delivery]) -> Cow<'a, str> {
    if let [delivery] = deliveries {
        return delivery.message.effective_event_id();
    }
    let mut hash = Sha256::new();
    for delivery in deliveries {
        hash.update(delivery.message.effective_event_id().as_bytes());
        hash.update(b"\n");
    }
    format!("batch_{}", BASE64.encode(hash.finalize())).into()
}

/// The most of a template's text that goes into a header.
const MAX_HEADER_CHARS: usize = 4_096;

#[async_trait]
impl PublishOne for Arc<Poster> {
    async fn publish_one(&self, delivery: &Delivery) -> Result<Receipt, PublishError> {
        self.post(&[delivery]).await.map(Receipt::from)
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn timed_out(&self, _: &Delivery, _: Duration) -> PublishError {
        self.gave_no_answer()
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.check_receiver().await
    }
}

#[async_trait]
impl PublishRound for Arc<Poster> {
    async fn publish_round(&self, round: &[&Delivery]) -> Result<Vec<Result<Receipt, PublishError>>, PublishError> {
        self.post(round).await?;
        Ok(round.iter().map(|_| Ok(Receipt::default())).collect())
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn timed_out(&self, _: Duration) -> PublishError {
        self.gave_no_answer()
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.check_receiver().await
    }
}

impl fmt::Debug for HttpPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpPublisher")
    }
}
