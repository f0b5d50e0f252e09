//! The receiver's answers in one table: what each means, and what to do about it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use posthaste_core::publisher::{ErrorKind, ErrorScope, PublishError};

use super::redaction::Redaction;
use crate::pace::MAX_PAUSE;

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    status: StatusCode,
    pause: Option<Duration>,
    /// It says when to come again.
    is_for_now: bool,
    said: Said,
}

/// What a receiver says of a request that it refused.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    message: Option<String>,
    /// Discord's.
    code: Option<i64>,
    /// In seconds.
    retry_after: Option<f64>,
}

impl Said {
    /// Discord has a `message`, problem+json a `detail` and a `title`, others an `error`; what is none of them is shown
    /// as it is.
    fn read(body: &[u8]) -> Self {
        let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        let message = ["message", "detail", "title", "error"].into_iter().find_map(text);
        Self {
            message: message.or_else(|| Some(String::from_utf8_lossy(body).into_owned())),
            code: said["code"].as_i64(),
            retry_after: said["retry_after"].as_f64(),
        }
    }
}

/// Discord's codes 220001 to 220004: the webhook belongs to a forum, and nothing says to which thread to post.
const THREAD_NEEDED: std::ops::RangeInclusive<i64> = 220_001..=220_004;

/// What nginx, Apache and Go's server say of a request that they did not look into.
const CONNECTION_PAGES: [&str; 5] = [
    "The plain HTTP request was sent to HTTPS port",
    "No required SSL certificate was sent",
    "The SSL certificate error",
    "speaking plain HTTP to an SSL-enabled server port",
    "Client sent an HTTP request to an HTTPS server",
];

/// Most of what a receiver says that is repeated.
const MAX_QUOTE_CHARS: usize = 200;

/// How long to wait if a receiver throttles and does not say for how long.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Less than this is not meant.
const MIN_RETRY_AFTER: Duration = Duration::from_millis(20);

impl Answer {
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let said = Said::read(body);
        Self {
            status,
            pause: pause(status, headers, said.retry_after),
            is_for_now: headers.contains_key(RETRY_AFTER),
            said,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// For how long the receiver wants nothing more, from anybody.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// Whether the notification was taken, and if not, what to make of it.
    pub(super) fn outcome(&self, host: &str, redaction: &Redaction) -> Result<(), PublishError> {
        let Some((kind, remedy)) = self.meaning() else {
            return Ok(());
        };
        let said = match self.said.message.as_deref().map(|text| one_line(text, redaction)) {
            Some(text) if !text.is_empty() => format!(" ({text})"),
            _ => String::new(),
        };
        let scope = match kind {
            ErrorKind::Transport | ErrorKind::Throttled { .. } => ErrorScope::Broker,
            _ => ErrorScope::Message,
        };
        let message = format!("HTTP receiver {host}: answered {}{said}; {remedy}", self.status);
        Err(PublishError::new(kind, scope, message))
    }

    /// There is one address for all messages, so an answer that is about the address says something about every message:
    /// it counts as transport, the circuit opens, and messages wait for an operator without being used up. Only what
    /// is about the notification itself is permanent.
    fn meaning(&self) -> Option<(ErrorKind, &'static str)> {
        const ADDRESS: &str =
            "the address is gone or wrong, or does not let us in; correct the publisher's url, bearer_token or headers";
        const MOVED: &str = "redirections are not followed; correct the publisher's url";
        const PROXY: &str =
            "a proxy on the way wants to know who is asking; let this host through, or set the publisher's proxy";
        const CONNECTION: &str = "the connection is not what the receiver wants; correct the scheme of the publisher's url, or \
                                  its tls.cert_file and tls.key_file";
        const WAIT: &str = "the receiver has trouble; it is tried again until it works";
        // This also ends the error of a message whose attempts are used up, so it must not promise another one.
        const TROUBLE: &str = "the receiver has trouble; its own log says why";
        const TEXT: &str = "the receiver refuses what the event says; correct it, or the publisher's format";
        const THREAD: &str = "this webhook belongs to a forum; add ?thread_id=… to the publisher's url";
        const SLOWER: &str = "the receiver asks to wait; lower the publisher's concurrency if this happens often";
        let code = self.said.code.unwrap_or_default();
        let throttled = |retry_after| (ErrorKind::Throttled { retry_after }, SLOWER);
        Some(match self.status.as_u16() {
            200..=299 => return None,
            300..=399 => (ErrorKind::Transport, MOVED),
            400 if THREAD_NEEDED.contains(&code) => (ErrorKind::Transport, THREAD),
            400 if self.is_about_the_connection() => (ErrorKind::Transport, CONNECTION),
            413 if self.is_for_now => (ErrorKind::Transient, WAIT),
            400 | 413 | 422 => (ErrorKind::Permanent, TEXT),
            401 | 403 | 404 | 405 | 410 => (ErrorKind::Transport, ADDRESS),
            407 => (ErrorKind::Transport, PROXY),
            429 => throttled(self.pause.unwrap_or(DEFAULT_RETRY_AFTER)),
            503 if let Some(pause) = self.pause => throttled(pause),
            // Gateways that find no server behind them; 520 to 530 are Cloudflare's.
            502..=504 | 520..=530 => (ErrorKind::Transport, WAIT),
            500..=599 => (ErrorKind::Transient, TROUBLE),
            // 408, 409 and 425 among them: may pass, and nothing says that others fare the same.
            _ => (ErrorKind::Transient, "see what the receiver says"),
        })
    }
}

impl Answer {
    /// Servers answer 400 as well if they are spoken to without encryption, or without a certificate that they take.
    fn is_about_the_connection(&self) -> bool {
        let said = self.said.message.as_deref().unwrap_or_default();
        CONNECTION_PAGES.iter().any(|page| said.contains(page))
    }
}

fn pause(status: StatusCode, headers: &HeaderMap, in_body: Option<f64>) -> Option<Duration> {
    // A slip of a header must not silence a relay, nor keep a message, for days.
    asked_for(status, headers, in_body).map(|pause| pause.min(MAX_PAUSE))
}

fn asked_for(status: StatusCode, headers: &HeaderMap, in_body: Option<f64>) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    // Two proxies on the way may each have added one, to the same line.
    let first = |text: &'_ str| text.split(',').next().unwrap_or_default().trim().parse().ok();
    let number = |name: &str| first(text(name)?).and_then(seconds);
    let until = |time: DateTime<Utc>| (time - Utc::now()).to_std().unwrap_or_default();
    let retry_after = || {
        number("retry-after").or_else(|| {
            let date = DateTime::parse_from_rfc2822(text("retry-after")?).ok()?;
            Some(until(date.to_utc()))
        })
    };
    let reset_after = || number("x-ratelimit-reset-after");
    match status {
        StatusCode::TOO_MANY_REQUESTS => in_body
            .and_then(seconds)
            .or_else(retry_after)
            .or_else(reset_after)
            // Who asks for no time at all would be asked again at once, and forever.
            .filter(|pause| *pause >= MIN_RETRY_AFTER)
            .or(Some(DEFAULT_RETRY_AFTER)),
        StatusCode::SERVICE_UNAVAILABLE => retry_after().map(|pause| match pause {
            pause if pause < MIN_RETRY_AFTER => DEFAULT_RETRY_AFTER,
            pause => pause,
        }),
        // The last one that is taken for now: better to wait than to be told to.
        _ if text("x-ratelimit-remaining") == Some("0") => reset_after(),
        _ => None,
    }
}

/// What was said, in one line, without secrets and not too long.
fn one_line(text: &str, redaction: &Redaction) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    crate::template::cut(&redaction.apply(&words.join(" ")), MAX_QUOTE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::super::options::HttpOptions;
    use super::*;

    fn outcome(answer: &Answer) -> Result<(), PublishError> {
        let url = "https://discord.com/api/webhooks/123456/hushhush".parse().unwrap();
        answer.outcome("discord.com", &Redaction::new(&HttpOptions::new(url)))
    }

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        Answer::new(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes())
    }

    fn kind(status: u16) -> Option<ErrorKind> {
        outcome(&answer(status, &[], "")).err().map(|error| error.kind)
    }

    /// Proves pitfall 26.
    #[test]
    fn only_what_is_about_the_notification_itself_is_permanent() {
        for status in 100..=599 {
            let permanent = [400, 413, 422].contains(&status);
            assert_eq!(kind(status) == Some(ErrorKind::Permanent), permanent, "{status}");
        }
        for status in [200, 201, 204] {
            assert_eq!(kind(status), None, "{status}");
        }
        for status in [302, 401, 403, 404, 405, 407, 410, 502, 503, 504, 522] {
            assert_eq!(kind(status), Some(ErrorKind::Transport), "{status}");
        }
        for status in [408, 409, 418, 425, 500, 501] {
            assert_eq!(kind(status), Some(ErrorKind::Transient), "{status}");
        }
        let forum = answer(
            400,
            &[],
            r#"{"message": "Webhooks posted to forum channels …", "code": 220001}"#,
        );
        let error = outcome(&forum).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transport);
        assert!(error.message.contains("thread_id"), "{error}");
    }

    /// It is what is said of a message whose attempts are used up.
    #[test]
    fn an_error_that_counts_as_an_attempt_promises_no_other() {
        for status in [408, 409, 418, 425, 500, 501, 505] {
            let error = outcome(&answer(status, &[], "")).unwrap_err();
            assert!(!error.message.contains("tried again"), "{error}");
        }
    }

    #[test]
    fn a_refusal_of_the_connection_is_not_the_events_fault() {
        let page = "<html><head><title>400 The SSL certificate error</title></head></html>";
        let error = outcome(&answer(400, &[], page)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transport);
        assert!(error.message.contains("tls.cert_file"), "{error}");
        let later = outcome(&answer(413, &[("retry-after", "60")], "")).unwrap_err();
        assert_eq!(later.kind, ErrorKind::Transient);
    }

    #[test]
    fn what_was_said_is_shown_in_whatever_form() {
        for body in [
            r#"{"detail": "no such thing"}"#,
            r#"{"title": "no such thing", "status": 404}"#,
            r#"{"error": "no such thing", "code": "not_found"}"#,
            r#"["no such thing"]"#,
            "no such thing",
        ] {
            let error = outcome(&answer(404, &[], body)).unwrap_err();
            assert!(error.message.contains("no such thing"), "{error}");
        }
        let textual = r#"{"code": "slow_down", "retry_after": 3}"#;
        assert_eq!(answer(429, &[], textual).pause(), Some(Duration::from_secs(3)));
    }

    #[test]
    fn the_body_or_a_header_says_for_how_long_to_wait() {
        let after = |seconds| Some(Duration::from_secs_f64(seconds));
        let body = r#"{"message": "You are being rate limited.", "retry_after": 0.25, "global": false}"#;
        assert_eq!(answer(429, &[("retry-after", "7")], body).pause(), after(0.25));
        assert_eq!(answer(429, &[("retry-after", "7")], "slow down").pause(), after(7.0));
        assert_eq!(
            answer(429, &[("x-ratelimit-reset-after", "1.5")], "").pause(),
            after(1.5)
        );
        for nonsense in ["-1", "NaN", "1e300", "soon"] {
            assert_eq!(
                answer(429, &[("retry-after", nonsense)], "").pause(),
                Some(DEFAULT_RETRY_AFTER)
            );
        }
        assert_eq!(answer(429, &[("retry-after", "7, 9")], "").pause(), after(7.0));
        for days in ["86400", "1e18"] {
            let too_long = answer(429, &[("retry-after", days)], "");
            assert_eq!(too_long.pause(), Some(MAX_PAUSE), "{days}");
            let error = outcome(&too_long).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Throttled { retry_after: MAX_PAUSE });
        }
        let past = answer(429, &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], "");
        assert_eq!(past.pause(), Some(DEFAULT_RETRY_AFTER), "not none at all");
        assert_eq!(
            answer(429, &[("retry-after", "0")], "").pause(),
            Some(DEFAULT_RETRY_AFTER)
        );
        let date = (Utc::now() + chrono::TimeDelta::seconds(90)).to_rfc2822();
        let pause = answer(429, &[("retry-after", &date)], "").pause().unwrap();
        assert!((80..=90).contains(&pause.as_secs()), "{pause:?}");
        let throttled = outcome(&answer(429, &[], body)).unwrap_err();
        let retry_after = Duration::from_millis(250);
        assert_eq!(throttled.kind, ErrorKind::Throttled { retry_after });
        assert_eq!(answer(503, &[("retry-after", "7")], "").pause(), after(7.0));
        assert_eq!(answer(503, &[], "").pause(), None);
        for at_once in ["0", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            let asked = answer(503, &[("retry-after", at_once)], "");
            assert_eq!(asked.pause(), Some(DEFAULT_RETRY_AFTER), "{at_once}");
        }
    }

    #[test]
    fn the_last_that_is_taken_for_now_is_followed_by_a_pause() {
        let last = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "0.5")];
        assert_eq!(answer(204, &last, "").pause(), Some(Duration::from_millis(500)));
        let more = [("x-ratelimit-remaining", "1"), ("x-ratelimit-reset-after", "0.5")];
        assert_eq!(answer(204, &more, "").pause(), None);
    }

    #[test]
    fn a_sentence_says_what_happened_and_what_to_do_and_keeps_the_secret() {
        let known = answer(404, &[], r#"{"message": "Unknown Webhook", "code": 10015}"#);
        assert_eq!(
            outcome(&known).unwrap_err().message,
            "HTTP receiver discord.com: answered 404 Not Found (Unknown Webhook); the address is gone or wrong, or does not \
             let us in; correct the publisher's url, bearer_token or headers"
        );
        let page = format!(
            "<p>/api/webhooks/123456/hushhush\n was not found{}</p>",
            " ".repeat(9) + &"x".repeat(900)
        );
        let text = outcome(&answer(404, &[], &page)).unwrap_err().message;
        assert!(
            !text.contains("hushhush") && !text.contains('\n') && text.len() < 500,
            "{text}"
        );
    }
}
