//! Signatures as Standard Webhooks has them, so that a receiver knows who sent an event and that it is unchanged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use super::secret::Secret;

/// The keys that every request is signed with. While a key is replaced there are two: receivers that know one of them
/// accept the request.
#[derive(Clone)]
pub(super) struct Signer(Vec<Hmac<Sha256>>);

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// What the secrets of Standard Webhooks begin with.
const PREFIX: &str = "whsec_";

/// The specification asks for 24 to 64 bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

impl Signer {
    /// Signs with these secrets; the error says what is wrong with one.
    pub(super) fn new(secrets: &[Secret]) -> Result<Self, (usize, &'static str)> {
        let keys = secrets.iter().enumerate();
        keys.map(|(place, secret)| key(secret).map_err(|remedy| (place, remedy)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The headers of a request with this id and body, sent at a time in seconds since 1970.
    pub(super) fn headers(&self, id: &str, seconds: i64, body: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.0.is_empty() {
            return headers;
        }
        let signatures: Vec<String> = self
            .0
            .iter()
            .map(|key| {
                let mut mac = key.clone();
                mac.update(format!("{id}.{seconds}.").as_bytes());
                mac.update(body);
                format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
            })
            .collect();
        headers.insert(TIMESTAMP, HeaderValue::from(seconds));
        for (name, text) in [(ID, id), (SIGNATURE, &signatures.join(" "))] {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

fn key(secret: &Secret) -> Result<Hmac<Sha256>, &'static str> {
    const REMEDY: &str =
        "must be `whsec_` and 24 to 64 bytes in base64; make one with `echo whsec_$(openssl rand -base64 32)`";
    let text = secret.reveal().strip_prefix(PREFIX).ok_or(REMEDY)?;
    let bytes = BASE64.decode(text).map_err(|_| REMEDY)?;
    if !KEY_BYTES.contains(&bytes.len()) {
        return Err(REMEDY);
    }
    Hmac::new_from_slice(&bytes).map_err(|_| REMEDY)
}
