//! Which letters are meant.

use super::record::DeadLetterRecord;

/// Which letters are meant: those that meet all of these. The default is every letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those at one of these offsets.
    pub offsets: Vec<i64>,
    /// Those of this partition of the dead-letter topic.
    pub partition: Option<i32>,
    /// Those with this type of event.
    pub event_type: Option<String>,
    /// That with this id.
    pub id: Option<String>,
    /// Those with this key.
    pub key: Option<String>,
    /// Those given up by this consumer group.
    pub group: Option<String>,
    /// Those whose error has this in it.
    pub error: Option<String>,
    /// Those that are open.
    pub open: bool,
    /// At most so many, oldest first.
    pub limit: Option<u64>,
}

impl Selection {
    /// Whether a letter is meant, whatever the limit.
    pub fn includes(&self, letter: &DeadLetterRecord) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            let same = |wanted: &String| found == Some(wanted.as_str());
            wanted.as_ref().is_none_or(same)
        };
        let death = letter.death.as_ref();
        (self.offsets.is_empty() || self.offsets.contains(&letter.offset))
            && self.partition.is_none_or(|partition| partition == letter.partition)
            && is(&self.event_type, letter.event_type.as_deref())
            && is(&self.id, letter.id.as_deref())
            && self
                .key
                .as_ref()
                .is_none_or(|key| letter.key.as_deref() == Some(key.as_bytes()))
            && is(&self.group, death.map(|death| death.group.as_str()))
            && self
                .error
                .as_ref()
                .is_none_or(|part| death.is_some_and(|death| death.error.contains(part)))
            && !(self.open && letter.replayed)
    }
}
