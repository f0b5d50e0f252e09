//! Where the events go: a file with one line per delivery, written by the relay's process and read by the oracle's.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use chrono::Utc;
use posthaste_core::publisher::{Delivery, PublishError};
use posthaste_core::{MessageId, Publisher};
use posthaste_publishers::Callback;
use serde::{Deserialize, Serialize};

use super::Stage;
use super::orders::OrderPlaced;

/// One delivery, as the sink saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delivered {
    pub(super) id: MessageId,
    pub(super) customer: String,
    pub(super) number: u32,
    pub(super) at_micros: i64,
}

/// A sink that fails while the stage says so.
pub(super) fn publisher(stage: &Stage) -> io::Result<impl Publisher> {
    let mut file = OpenOptions::new().create(true).append(true).open(stage.record())?;
    // Ends a line that a killed predecessor may have left half-written.
    file.write_all(b"\n")?;
    let (file, outage) = (Arc::new(file), stage.outage());
    Ok(Callback::new(move |delivery: Delivery| {
        let taken = if outage.exists() {
            Err(PublishError::transient("the sink is down"))
        } else {
            append(&file, &delivery)
        };
        std::future::ready(taken)
    }))
}

fn append(mut file: &File, delivery: &Delivery) -> Result<(), PublishError> {
    let order: OrderPlaced = serde_json::from_slice(&delivery.message.payload)
        .map_err(|error| PublishError::permanent(format!("not an order: {error}")))?;
    let delivered = Delivered {
        id: delivery.message.id,
        customer: order.customer,
        number: order.number,
        at_micros: Utc::now().timestamp_micros(),
    };
    let mut line = serde_json::to_vec(&delivered).map_err(|error| PublishError::permanent(error.to_string()))?;
    line.push(b'\n');
    // One write: appends of one call are not torn apart by another.
    file.write_all(&line)
        .map_err(|error| PublishError::transient(format!("cannot write the record: {error}")))
}

/// Reads the record while it grows.
pub(super) struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    deliveries: Vec<Delivered>,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            rest: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    /// Takes in what is new and returns how many deliveries there are.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        if self.file.is_none() && self.path.exists() {
            self.file = Some(File::open(&self.path)?);
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.rest)?;
        }
        let complete = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..complete).collect();
        // A line that was cut off was never acknowledged: it is no delivery.
        let new = lines
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok());
        self.deliveries.extend(new);
        Ok(self.deliveries.len())
    }

    pub(super) fn deliveries(&self) -> &[Delivered] {
        &self.deliveries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_no_delivery_and_does_not_swallow_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let stage = Stage(directory.path().to_owned());
        let line = |number| {
            let delivered = Delivered {
                id: MessageId::new(),
                customer: "a".into(),
                number,
                at_micros: 0,
            };
            serde_json::to_string(&delivered).unwrap() + "\n"
        };
        let mut tail = Tail::new(stage.record());
        assert_eq!(tail.read().unwrap(), 0);
        std::fs::write(stage.record(), line(1) + &line(2)[..20]).unwrap();
        assert_eq!(tail.read().unwrap(), 1);
        drop(publisher(&stage).unwrap());
        let mut file = OpenOptions::new().append(true).open(stage.record()).unwrap();
        file.write_all(line(3).as_bytes()).unwrap();
        assert_eq!(tail.read().unwrap(), 2);
        assert_eq!(tail.deliveries()[1].number, 3);
    }
}
