//! Addresses, which may be their own password.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper_util::client::legacy::connect::dns::Name;
use serde::{Deserialize, Deserializer, de};

/// Where events are posted. To know a webhook's address is to be allowed to post there, so it shows its host and no more.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl(String);

impl HttpUrl {
    /// The whole of it, to connect with and not to be shown.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// The host and port.
    pub fn host(&self) -> &str {
        let authority = self.authority();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    fn authority(&self) -> &str {
        self.0.split('/').nth(2).unwrap_or_default()
    }

    /// Name and password, if it has them, as HTTP's basic authentication wants them.
    pub(super) fn basic_auth(&self) -> Option<String> {
        let (user, _) = self.authority().rsplit_once('@')?;
        let decoded = percent_encoding::percent_decode_str(user).decode_utf8_lossy();
        Some(format!("Basic {}", BASE64.encode(decoded.as_bytes())))
    }

    /// Scheme and host only.
    pub(super) fn without_user(&self) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.host())
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_tls(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// Whether the path is that of Discord's API, which can be asked about a webhook.
    pub(super) fn is_discord(&self) -> bool {
        self.0.contains("/api/webhooks/") || self.0.contains("/api/v") && self.0.contains("/webhooks/")
    }

    /// The parts of its path and query: to know them is to be allowed to post.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secret = self.0.splitn(4, '/').nth(3).unwrap_or_default();
        secret.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
    }

    /// The same, where it is Discord's asking to be answered once the notification is stored. Without it Discord answers
    /// at once, also for what it then fails to store. Others may refuse what they do not know.
    pub(super) fn confirmed(&self) -> String {
        if !self.is_discord() {
            return self.0.clone();
        }
        let (path, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        if query.split('&').any(|part| part.starts_with("wait=")) {
            return self.0.clone();
        }
        let joined = if query.is_empty() { "" } else { "&" };
        format!("{path}?{query}{joined}wait=true")
    }
}

impl FromStr for HttpUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXAMPLE: &str = "not an address; write https://host/path, as the receiver shows it";
        const PORT: &str = "has a port that is no number from 1 to 65535; write https://host:port/path";
        const TEMPLATE: &str = "has braces, but is posted to as it stands; for several addresses write [[publishers]] with \
                                [[routes]], for a brace as such %7B or %7D";
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").ok_or(EXAMPLE)?;
        if !matches!(scheme, "http" | "https") {
            return Err(EXAMPLE);
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (name, port) = match host.rsplit_once(':') {
            // The colons of an IPv6 address are within its brackets.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (host, None),
        };
        if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit()) || !port.parse().is_ok_and(is_port))
        {
            return Err(PORT);
        }
        if path.contains(['{', '}']) {
            return Err(TEMPLATE);
        }
        let is_printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if name.is_empty() || name.parse::<Name>().is_err() || !is_printable(rest) || path.contains('#') {
            return Err(EXAMPLE);
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self(format!("{scheme}://{authority}{slash}{path}")))
    }
}

fn is_port(port: u16) -> bool {
    port > 0
}

impl<'de> Deserialize<'de> for HttpUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls() { "https" } else { "http" };
        write!(f, "{scheme}://{}/***", self.host())
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> HttpUrl {
        text.parse().unwrap()
    }

    #[test]
    fn the_secret_is_never_shown() {
        let url = url("https://discord.com/api/webhooks/123/hush?thread_id=hush");
        assert_eq!(
            format!("{url} {url:?}"),
            "https://discord.com/*** https://discord.com/***"
        );
        assert_eq!(url.host(), "discord.com");
    }

    #[test]
    fn a_query_is_a_secret_also_without_a_path() {
        let url = url("https://hooks.example?token=hushhush");
        assert_eq!(
            (url.host(), &*url.to_string(), url.reveal()),
            (
                "hooks.example",
                "https://hooks.example/***",
                "https://hooks.example/?token=hushhush"
            )
        );
        assert!(url.secrets().any(|part| part == "hushhush"));
    }

    #[test]
    fn ports_and_addresses_of_ipv6_are_understood() {
        for (given, host) in [
            ("http://[::1]:8080/x", "[::1]:8080"),
            ("http://[::1]/x", "[::1]"),
            ("http://h:65535", "h:65535"),
        ] {
            assert_eq!(url(given).host(), host);
        }
    }

    #[test]
    fn name_and_password_are_used_and_not_shown() {
        let url = url("http://ann:h%40sh@proxy.internal:3128");
        assert_eq!(
            (url.host(), &*url.without_user()),
            ("proxy.internal:3128", "http://proxy.internal:3128")
        );
        assert_eq!(
            url.basic_auth().unwrap(),
            format!("Basic {}", BASE64.encode("ann:h@sh"))
        );
        assert_eq!(url.to_string(), "http://proxy.internal:3128/***");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "discord.com/x",
            "ftp://discord.com/x",
            "https:///x",
            "https://:80/x",
            "https://discord.com/x y",
            "https://discord.com/x#y",
            "https://discord.com#y",
            "https://discord.com:80800/x",
            "https://discord.com:abc/x",
            "https://discord.com:+80/x",
            "https://discord.com:0/x",
            "https://discord.com:/x",
            "https://discord.com/{topic}",
        ] {
            assert!(text.parse::<HttpUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn discord_is_asked_for_a_confirmation_unless_the_address_says_otherwise() {
        for (given, asked) in [
            ("https://h/api/webhooks/1/p", "https://h/api/webhooks/1/p?wait=true"),
            (
                "https://h/api/webhooks/1/p?thread_id=1",
                "https://h/api/webhooks/1/p?thread_id=1&wait=true",
            ),
            (
                "https://h/api/webhooks/1/p?wait=false",
                "https://h/api/webhooks/1/p?wait=false",
            ),
            ("https://h/p", "https://h/p"),
            ("https://h/p?key=1", "https://h/p?key=1"),
        ] {
            assert_eq!(url(given).confirmed(), asked);
        }
    }
}
