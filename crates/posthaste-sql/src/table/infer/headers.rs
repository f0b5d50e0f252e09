//! Whether a column has headers: names and texts that may travel beside the payload.

use serde_json::Value;

use super::names::plain;
use crate::table::LiveColumn;
use posthaste_core::envelope::{attribute_name, is_reserved};

/// Why the column is better not taken for headers, by what its rows have in it. Without rows its name must say it.
pub(super) fn doubt(column: &LiveColumn) -> Option<String> {
    if column.values.is_empty() && plain(&column.name) != "headers" {
        return Some(
            "no row says whether these are headers; map it as such if its values are objects of texts".to_owned(),
        );
    }
    column.values.iter().find_map(|value| unsuited(value)).map(|reason| {
        format!("as headers its values would travel with every event, but {reason}; map it only if that is meant")
    })
}

fn unsuited(value: &str) -> Option<String> {
    let Ok(Value::Object(headers)) = serde_json::from_str(value) else {
        return Some("some are no JSON objects".to_owned());
    };
    let name = |name: &str| name.replace(|c: char| c.is_control(), " ");
    headers.iter().find_map(|(header, value)| match attribute_name(header) {
        None => Some(format!("{:?} cannot be the name of a header", name(header))),
        Some(attribute) if is_reserved(&attribute) => {
            Some(format!("{:?} is the name of an attribute of the event", name(header)))
        }
        Some(_) if !value.is_string() => Some(format!("{:?} is not always a text", name(header))),
        Some(_) => None,
    })
}
