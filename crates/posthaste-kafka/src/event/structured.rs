//! Reads the JSON event format.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use posthaste_core::envelope::is_json;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::DecodeError;

/// The attributes and the payload of an event.
pub(super) fn read(json: &[u8]) -> Result<(BTreeMap<String, String>, Bytes), DecodeError> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(json)?;
    let data = members.remove("data");
    let base64 = members.remove("data_base64");
    let mut attributes = BTreeMap::new();
    for (name, raw) in members {
        match serde_json::from_str(raw.get())? {
            Value::Null => {}
            Value::String(text) => {
                attributes.insert(name, text);
            }
            other => {
                attributes.insert(name, other.to_string());
            }
        }
    }
    let content_type = attributes.get("datacontenttype").map(String::as_str);
    let payload = match (base64, data) {
        (Some(base64), _) => decode_base64(&serde_json::from_str::<String>(base64.get())?)?,
        (None, Some(data)) => plain(&data, content_type)?,
        (None, None) => Bytes::new(),
    };
    Ok((attributes, payload))
}

/// JSON stands for itself; other text stands in a JSON string.
fn plain(data: &RawValue, content_type: Option<&str>) -> Result<Bytes, DecodeError> {
    let text = data.get();
    if content_type.is_none_or(is_json) || !text.starts_with('"') {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    Ok(Bytes::from(serde_json::from_str::<String>(text)?))
}

fn decode_base64(text: &str) -> Result<Bytes, DecodeError> {
    match BASE64.decode(text) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(error) => Err(DecodeError::Malformed {
            name: "data_base64".to_owned(),
            value: text.chars().take(40).collect(),
            reason: error.to_string(),
        }),
    }
}
