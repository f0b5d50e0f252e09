//! An append-only file: one event per line.

mod append;
mod error;
mod options;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Capabilities, LaneOrder, PublishError, Publisher, Report};
use tokio::task::spawn_blocking;

pub use self::error::FileError;
pub use self::options::FileOptions;
use tokio::sync::Mutex;

use crate::lines::{BrokenOff, LineSink, publish_lines};
use crate::options::{InvalidOption, PublisherContext, PublisherOptions};

/// Appends each message as one line of JSON to a file, and reports it delivered once the disk has it.
///
/// The file may be moved away or removed at any time, as log rotation does: the next batch begins a new one. Several
/// processes may append to one file. A batch that failed half-way is taken out of the file again, and written as a whole
/// later. Readers still deduplicate by id, and skip a line that a crash has cut off.
///
/// A file that cannot be written, such as on a full disk, is a failure of the way and not of messages: the relay's
/// circuit opens, and everything waits without using up attempts.
#[derive(Clone, Debug)]
pub struct FilePublisher(Arc<Mutex<FileOptions>>);

impl FilePublisher {
    /// Opens or creates the file, to see now rather than at the first batch whether it can be written, and ends a line
    /// that a crash has cut off.
    pub fn open(options: FileOptions) -> Result<Self, FileError> {
        append::append(&options, Vec::new)?;
        Ok(Self(Arc::new(Mutex::new(options))))
    }
}

impl PublisherOptions for FileOptions {
    fn validate(&self, _: &PublisherContext) -> Result<(), InvalidOption> {
        if self.path.as_os_str().is_empty() {
            return Err(InvalidOption::new(
                "path",
                "\"\"",
                "name a file, such as \"events.jsonl\"",
            ));
        }
        Ok(())
    }

    fn build(self, _: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption> {
        let path = self.path.clone();
        let opened = FilePublisher::open(self);
        let publisher = opened.map_err(|error| InvalidOption::new("path", path.display(), error.to_string()))?;
        Ok(Arc::new(publisher))
    }
}

#[async_trait]
impl Publisher for FilePublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        publish_lines(&self.0, batch, report).await;
    }

    fn name(&self) -> &'static str {
        "file"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }

    /// Whether the file, or its directory while there is no file, can be written. Creates and changes nothing.
    async fn check(&self) -> Result<String, PublishError> {
        // A batch that is being written may have to wait for another process.
        let options = Arc::clone(&self.0).lock_owned().await;
        let checking =
            spawn_blocking(move || append::check(&options).map(|()| format!("file {}", options.path.display())));
        match checking.await {
            Ok(checked) => checked.map_err(|error| PublishError::transport(error.to_string())),
            Err(error) => Err(PublishError::transport(format!("the file was not checked: {error}"))),
        }
    }
}

impl LineSink for FileOptions {
    fn append(&mut self, lines: impl FnOnce() -> Vec<u8>) -> Result<(), BrokenOff> {
        append::append(self, lines).map_err(|error| BrokenOff {
            taken: 0,
            error: PublishError::transport(error.to_string()),
        })
    }
}
