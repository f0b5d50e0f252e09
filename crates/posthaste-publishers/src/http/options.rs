//! The HTTP publisher's settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;

use super::format::{DiscordOptions, HttpFormat};
use super::secret::Secret;
use super::sign::Signer;
use super::url::HttpUrl;
use crate::options::{InvalidOption, PublisherContext};
use crate::template::Template;

/// Where events are posted, and how.
///
/// # Examples
///
/// ```
/// use posthaste_publishers::http::{HttpFormat, HttpOptions, HttpPublisher};
///
/// let url = "https://hooks.example.com/orders".parse().unwrap();
/// let options = HttpOptions::new(url)
///     .format(HttpFormat::Structured)
///     .bearer_token("t0ken")
///     .signing_secret("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz");
/// let publisher = HttpPublisher::new(options).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Where to post. To know a webhook's address is to be allowed to post there, so it is best kept in the environment.
    pub url: HttpUrl,
    /// What a request looks like: `binary`, `structured`, `batch` or `discord`. Defaults to `binary`.
    #[serde(default)]
    pub format: HttpFormat,
    /// Headers that every request has besides its own; the values are templates, and constants for `batch`. Defaults to
    /// none.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// A token for `Authorization: Bearer`. Defaults to none.
    #[serde(default)]
    pub bearer_token: Option<Secret>,
    /// The secrets by which requests are signed as Standard Webhooks asks for, `whsec_…`. To replace one, have both here
    /// until all receivers know the new one. Defaults to none, and then nothing is signed.
    #[serde(default)]
    pub signing_secrets: Vec<Secret>,
    /// Certificates other than the system's.
    #[serde(default)]
    pub tls: TlsOptions,
    /// A proxy that lets us through to the receiver by CONNECT, such as `http://user:password@proxy.internal:3128`.
    /// Defaults to none.
    #[serde(default)]
    pub proxy: Option<HttpUrl>,
    /// How large requests get. For `batch`.
    #[serde(default)]
    pub batch: BatchOptions,
    /// What a notification says. For `discord`.
    #[serde(default)]
    pub discord: DiscordOptions,
    /// How many requests are on their way at a time, never two with events of one key. Defaults to 16, and to 4 for
    /// `discord`, which takes a few a second.
    #[serde(default)]
    pub concurrency: Option<usize>,
    /// How long a request may take, waiting for a rate limit included. Keep it below the relay's `publish_timeout`.
    /// Defaults to two thirds of it where a configuration file says nothing, else to 20 s.
    #[serde(default, with = "humantime_serde")]
    pub answer_within: Option<Duration>,
}

/// Certificates other than the system's, as PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsOptions {
    /// The authorities that are trusted, in place of those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate by which we are known to the receiver (mTLS), with its chain. Needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
}

/// How large the requests of `batch` get.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BatchOptions {
    /// The most events of a request. Defaults to 100.
    pub max_messages: usize,
    /// The most bytes of payload of a request; a larger event is sent alone. Defaults to 1 MiB.
    pub max_bytes: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            max_messages: 100,
            max_bytes: 1024 * 1024,
        }
    }
}

const MAX_CONCURRENCY: usize = 1_000;
const DEFAULT_CONCURRENCY: usize = 16;
const DISCORD_CONCURRENCY: usize = 4;
const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Headers that a request has by itself.
const TAKEN: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
];

impl HttpOptions {
    /// Posts to `url`, with the defaults.
    pub fn new(url: HttpUrl) -> Self {
        Self {
            url,
            format: HttpFormat::default(),
            headers: BTreeMap::new(),
            bearer_token: None,
            signing_secrets: Vec::new(),
            tls: TlsOptions::default(),
            proxy: None,
            batch: BatchOptions::default(),
            discord: DiscordOptions::default(),
            concurrency: None,
            answer_within: None,
        }
    }

    /// What a request looks like.
    #[must_use]
    pub fn format(mut self, format: HttpFormat) -> Self {
        self.format = format;
        self
    }

    /// A header that every request has; the value is a template.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// A token for `Authorization: Bearer`.
    #[must_use]
    pub fn bearer_token(mut self, token: impl Into<Secret>) -> Self {
        self.bearer_token = Some(token.into());
        self
    }

    /// One more secret by which requests are signed.
    #[must_use]
    pub fn signing_secret(mut self, secret: impl Into<Secret>) -> Self {
        self.signing_secrets.push(secret.into());
        self
    }

    /// What a notification says.
    #[must_use]
    pub fn discord(mut self, notification: DiscordOptions) -> Self {
        self.discord = notification;
        self
    }

    /// How many requests are on their way at a time.
    #[must_use]
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = Some(requests);
        self
    }

    /// How long a request may take.
    #[must_use]
    pub fn answer_within(mut self, answer_within: Duration) -> Self {
        self.answer_within = Some(answer_within);
        self
    }

    /// The same, with what the settings around it say.
    pub(super) fn within(self, context: &PublisherContext) -> Result<Self, InvalidOption> {
        let answer_within = context.answer_within(self.answer_within)?;
        Ok(self.answer_within(answer_within))
    }

    pub(super) fn effective_answer_within(&self) -> Duration {
        self.answer_within.unwrap_or(DEFAULT_ANSWER_WITHIN)
    }

    pub(super) fn effective_concurrency(&self) -> usize {
        self.concurrency.unwrap_or(match self.format {
            HttpFormat::Discord => DISCORD_CONCURRENCY,
            _ => DEFAULT_CONCURRENCY,
        })
    }

    /// Checks what no other part of the publisher does when it is made.
    pub(super) fn validate(&self) -> Result<(), InvalidOption> {
        if self.url.basic_auth().is_some() {
            let remedy = "holds a user's name; leave it out and use bearer_token, or headers.authorization";
            return Err(InvalidOption::new("url", &self.url, remedy));
        }
        if !(1..=MAX_CONCURRENCY).contains(&self.effective_concurrency()) {
            return Err(InvalidOption::new(
                "concurrency",
                self.effective_concurrency(),
                "must be 1 to 1000",
            ));
        }
        if self.effective_answer_within().is_zero() {
            return Err(InvalidOption::new("answer_within", "0s", "must be above 0"));
        }
        if self.batch.max_messages == 0 {
            return Err(InvalidOption::new("batch.max_messages", 0, "must be above 0"));
        }
        if self.discord != DiscordOptions::default() && self.format != HttpFormat::Discord {
            let remedy = "is for format = \"discord\"; set it, or leave these settings out";
            return Err(InvalidOption::new("discord", "{ … }", remedy));
        }
        if self.batch != BatchOptions::default() && self.format != HttpFormat::Batch {
            let remedy = "is for format = \"batch\"; set it, or leave these settings out";
            return Err(InvalidOption::new("batch", "{ … }", remedy));
        }
        Ok(())
    }

    /// The headers of the settings, read.
    pub(super) fn header_templates(&self) -> Result<Vec<(HeaderName, Template)>, InvalidOption> {
        let read = |(name, value): (&String, &Secret)| {
            let refuse = |remedy: String| InvalidOption::new(format!("headers.{name}"), "***", remedy);
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|error| refuse(error.to_string()))?;
            if TAKEN.contains(&header) || header.as_str().starts_with("ce-") {
                return Err(refuse("is set by the publisher itself; leave it out".to_owned()));
            }
            if !self.signing_secrets.is_empty() && header.as_str().starts_with("webhook-") {
                let remedy = "is part of the signature, which signing_secrets asks for; leave one of them out";
                return Err(refuse(remedy.to_owned()));
            }
            if self
                .headers
                .keys()
                .any(|other| other < name && other.eq_ignore_ascii_case(name))
            {
                return Err(refuse(
                    "is given twice, in other letters; leave one of them out".to_owned(),
                ));
            }
            if header == header::AUTHORIZATION && self.bearer_token.is_some() {
                return Err(refuse(
                    "is given by bearer_token as well; leave one of them out".to_owned(),
                ));
            }
            let template = Template::parse(value.reveal()).map_err(refuse)?;
            if self.format == HttpFormat::Batch && !template.is_constant() {
                // An idempotency key of the first event would have a receiver drop the next batch that begins with it.
                let remedy = "a batch has many events; give a constant, or use format = \"structured\"";
                return Err(refuse(remedy.to_owned()));
            }
            if HeaderValue::from_str(value.reveal()).is_err() {
                return Err(refuse("has characters that no header can have".to_owned()));
            }
            Ok((header, template))
        };
        self.headers.iter().map(read).collect()
    }

    /// The signatures of the settings.
    pub(super) fn signer(&self) -> Result<Signer, InvalidOption> {
        Signer::new(&self.signing_secrets)
            .map_err(|(place, remedy)| InvalidOption::new(format!("signing_secrets.{place}"), "***", remedy))
    }
}
