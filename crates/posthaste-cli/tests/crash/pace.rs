//! How much was delivered lately, which is what a log's reader may not have written down when it dies.

use std::collections::VecDeque;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// A reader writes down what is settled every quarter of a second, at its next call; the calls of a busy machine take a
/// while.
const UNWRITTEN_FOR: Duration = Duration::from_millis(500);

const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);

/// Counts the lines of a file as it grows.
#[derive(Clone, Debug)]
pub struct Pace(Arc<Mutex<VecDeque<(Instant, usize)>>>);

impl Pace {
    /// Of a file that may not be there yet.
    pub fn of(file: PathBuf) -> Self {
        let samples = Arc::new(Mutex::new(VecDeque::from([(Instant::now(), 0)])));
        tokio::spawn(sample(Arc::downgrade(&samples), file));
        Self(samples)
    }

    /// All deliveries up to now.
    pub fn delivered(&self) -> usize {
        let samples = self.0.lock().unwrap();
        samples.back().map_or(0, |(_, lines)| *lines)
    }

    /// The deliveries that a reader may not have written down.
    pub fn unwritten(&self) -> usize {
        let samples = self.0.lock().unwrap();
        let (_, last) = samples.back().expect("the first one is always there");
        let (_, before) = samples.front().expect("likewise");
        last - before
    }
}

async fn sample(samples: Weak<Mutex<VecDeque<(Instant, usize)>>>, file: PathBuf) {
    let (mut open, mut lines, mut buffer) = (None, 0, Vec::new());
    while let Some(samples) = samples.upgrade() {
        if open.is_none() {
            open = std::fs::File::open(&file).ok();
        }
        if let Some(open) = &mut open {
            buffer.clear();
            open.read_to_end(&mut buffer).unwrap();
            lines += line_count(&buffer);
        }
        push(&samples, lines);
        drop(samples);
        sleep(SAMPLE_INTERVAL).await;
    }
}

fn push(samples: &Mutex<VecDeque<(Instant, usize)>>, lines: usize) {
    let now = Instant::now();
    let mut samples = samples.lock().unwrap();
    // One that is older stays: what came after it may be as young as that.
    while samples.get(1).is_some_and(|(at, _)| now - *at > UNWRITTEN_FOR) {
        samples.pop_front();
    }
    samples.push_back((now, lines));
}

fn line_count(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count() - 1
}
