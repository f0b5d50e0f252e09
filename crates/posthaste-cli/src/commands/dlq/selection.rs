//! Which letters are meant.

use clap::Args;
use posthaste_kafka::dlq::Selection;

#[derive(Debug, Args)]
pub(super) struct Which {
    /// Only letters with this: type, id, key, group (of the consumer that gave it up) or error (a part of it); may be
    /// repeated, all must hold
    #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = condition)]
    conditions: Vec<Condition>,
    /// Only this partition of the .dlq topic
    #[arg(long)]
    partition: Option<i32>,
}

#[derive(Clone, Debug)]
struct Condition {
    field: Field,
    value: String,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Type,
    Id,
    Key,
    Group,
    Error,
}

fn condition(text: &str) -> Result<Condition, String> {
    let (field, value) = text
        .split_once('=')
        .ok_or("write the field and its value, such as type=shop.order.created.v1")?;
    let field = match field.trim() {
        "type" => Field::Type,
        "id" => Field::Id,
        "key" => Field::Key,
        "group" => Field::Group,
        "error" => Field::Error,
        other => return Err(format!("{other}: unknown field; use type, id, key, group or error")),
    };
    let value = value.to_owned();
    Ok(Condition { field, value })
}

impl Which {
    /// Whether nothing narrows it down.
    pub(super) fn is_everything(&self) -> bool {
        self.conditions.is_empty() && self.partition.is_none()
    }

    pub(super) fn selection(self) -> Selection {
        let mut selection = Selection {
            partition: self.partition,
            ..Selection::default()
        };
        for Condition { field, value } in self.conditions {
            let place = match field {
                Field::Type => &mut selection.event_type,
                Field::Id => &mut selection.id,
                Field::Key => &mut selection.key,
                Field::Group => &mut selection.group,
                Field::Error => &mut selection.error,
            };
            *place = Some(value);
        }
        selection
    }
}
