//! What verdicts are tried on where a table has no row for it.

use posthaste_core::message::{Message, MessageId, Text};
use posthaste_core::store::Scope;

use super::{Kind, Role, TableMap};

impl TableMap {
    /// A message for a row of a scope on which verdicts are tried, if one can be made that the table takes.
    pub fn trial_message(&self, scope: &Scope) -> Option<Message> {
        let id = MessageId::new();
        let text = |role: Role| match self.column(role)?.kind {
            Kind::Integer => Some(Text::new_static("0")),
            Kind::Uuid | Kind::UuidBytes => Some(Text::from(id.to_string())),
            // What two roles share a column for must be equal, and short.
            _ => Some(Text::new_static("posthaste-trial")),
        };
        let topic = scope.topics.first().map_or("posthaste-trial", String::as_str);
        let mut message = Message::new(topic, "{}");
        message.ordering_key = text(Role::OrderingKey);
        message.aggregate_type = text(Role::AggregateType);
        message.aggregate_id = text(Role::AggregateId);
        message.event_type = text(Role::EventType).map(|_| Text::new_static("posthaste.trial.tried.v1"));
        message.tenant = scope.tenant.as_deref().map(Text::from).or_else(|| text(Role::Tenant));
        message.source = text(Role::Source);
        message.topic = self.topic_for(&message).ok()?.into();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use crate::table::{BUILTIN_MAPS, TableMap};
    use posthaste_core::enqueue::{OutboxOptions, Prepared};
    use posthaste_core::store::Scope;

    #[test]
    fn the_message_that_is_tried_fits_every_table_that_ships() {
        let builtin = BUILTIN_MAPS.iter().map(|builtin| builtin.map().unwrap());
        for map in builtin.chain([TableMap::in_schema("posthaste").unwrap()]) {
            let message = map.trial_message(&Scope::default()).expect("it has a topic");
            let prepared = Prepared::new([message], &OutboxOptions::default()).unwrap();
            map.validate_messages(&prepared).unwrap();
        }
    }
}
