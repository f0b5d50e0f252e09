//! What was replayed, written into the dead-letter topic itself.
//!
//! Kafka forgets the offsets of a group without members (`offsets.retention.minutes`, seven days) long before dead
//! letters expire; without this, letters that were replayed a week ago would count as open again. The marker lies above
//! every letter that it speaks of, so it outlives them.

use std::collections::BTreeMap;

use super::progress::Progress;

/// Of each partition: `{partition}:{position}:{above}`, joined by `;`.
pub(super) fn write(progress: &BTreeMap<i32, Progress>) -> String {
    let one = |(partition, progress): (&i32, &Progress)| {
        let (position, above) = (progress.position, progress.above());
        format!("{partition}:{position}:{above}")
    };
    progress.iter().map(one).collect::<Vec<_>>().join(";")
}

pub(super) fn read(text: &[u8]) -> Option<BTreeMap<i32, Progress>> {
    let one = |part: &str| {
        let mut fields = part.splitn(3, ':');
        let partition = fields.next()?.parse().ok()?;
        let position = fields.next()?.parse().ok()?;
        Some((partition, Progress::read(position, fields.next()?)?))
    };
    std::str::from_utf8(text).ok()?.split(';').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut scattered = Progress::at(3);
        scattered.add(5, 6);
        scattered.add(8, 11);
        let progress = BTreeMap::from([(0, scattered), (1, Progress::at(0))]);
        let text = write(&progress);
        assert_eq!(text, "0:3:5,8-10;1:0:");
        assert_eq!(read(text.as_bytes()), Some(progress));
        assert_eq!(read(b"hello"), None);
        assert_eq!(read(&[0xff]), None);
    }
}
