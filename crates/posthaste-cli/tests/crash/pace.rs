//! How much was delivered lately, which is what a log's reader may not have written down when it dies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A reader writes down what is settled every quarter of a second, at its next call; the calls of a busy machine take a
/// while.
const UNWRITTEN_FOR: Duration = Duration::from_millis(500);

const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);

/// Counts what arrives at a sink.
#[derive(Clone, Debug)]
pub struct Pace(Arc<Mutex<VecDeque<(Instant, usize)>>>);

impl Pace {
    /// By what gives the number of all deliveries up to now, and may take a while for it.
    pub fn of(count: impl FnMut() -> usize + Send + 'static) -> Self {
        let samples = Arc::new(Mutex::new(VecDeque::from([(Instant::now(), 0)])));
        let counted = Arc::downgrade(&samples);
        std::thread::spawn(move || sample(&counted, count));
        Self(samples)
    }

    /// All deliveries up to now.
    pub fn delivered(&self) -> usize {
        let samples = self.0.lock().unwrap();
        samples.back().map_or(0, |(_, deliveries)| *deliveries)
    }

    /// The deliveries that a reader may not have written down.
    pub fn unwritten(&self) -> usize {
        let samples = self.0.lock().unwrap();
        let (_, last) = samples.back().expect("the first one is always there");
        let (_, before) = samples.front().expect("likewise");
        last - before
    }
}

fn sample(samples: &Weak<Mutex<VecDeque<(Instant, usize)>>>, mut count: impl FnMut() -> usize) {
    while let Some(samples) = samples.upgrade() {
        push(&samples, count());
        drop(samples);
        std::thread::sleep(SAMPLE_INTERVAL);
    }
}

fn push(samples: &Mutex<VecDeque<(Instant, usize)>>, deliveries: usize) {
    let now = Instant::now();
    let mut samples = samples.lock().unwrap();
    // One that is older stays: what came after it may be as young as that.
    while samples.get(1).is_some_and(|(at, _)| now - *at > UNWRITTEN_FOR) {
        samples.pop_front();
    }
    samples.push_back((now, deliveries));
}
