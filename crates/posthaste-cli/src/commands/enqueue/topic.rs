//! Where a message goes that does not say so itself.

use posthaste_core::Message;
use posthaste_sql::TableMap;
use posthaste_sql::table::Role;

/// The topic that the table's rule derives, or what is wrong if there is none.
pub(super) fn derived(message: &Message, map: Option<&TableMap>) -> Result<String, String> {
    let Some(map) = map.filter(|map| !map.has(Role::Topic)) else {
        return Err("is missing; say where the message goes".to_owned());
    };
    map.topic_for(message).map_err(|reason| {
        let reason = reason.strip_prefix("no topic: ").unwrap_or(&reason);
        format!("the table map `{}` derives it, and cannot: {reason}", map.name())
    })
}

/// The same for a message that was given by flags: what is missing is named by its flag.
pub(super) fn derived_of_flags(message: &Message, map: Option<&TableMap>) -> Result<String, String> {
    derived(message, map).map_err(|reason| {
        let flag = match reason.rsplit(' ').next() {
            Some("aggregate_type") => "; give --aggregate TYPE/ID",
            Some("event_type") => "; give --type TYPE",
            Some("source") => "; give --source SOURCE",
            Some("tenant") => "; give --tenant TENANT",
            _ => "",
        };
        format!("--topic: {reason}{flag}")
    })
}
