//! What a piece of code logs and counts, for tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, Once};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tracing_subscriber::fmt::MakeWriter;

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What was counted, by name, and what was logged.
pub(crate) fn observe(action: impl FnOnce()) -> (BTreeMap<String, u64>, String) {
    let (series, log) = observe_series(action);
    let mut counted = BTreeMap::new();
    for (series, value) in series {
        let name = series.split('{').next().unwrap_or_default();
        *counted.entry(name.to_owned()).or_default() += value;
    }
    (counted, log)
}

/// What was counted, by name and labels as in `name{label=value,label=value}`, and what was logged.
pub(crate) fn observe_series(action: impl FnOnce()) -> (BTreeMap<String, u64>, String) {
    // Somebody who is interested is always there: else an event that another test meets first may be taken for one that nobody
    // wants, here too.
    static INTERESTED: Once = Once::new();
    INTERESTED.call_once(|| {
        let nowhere = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        drop(tracing::subscriber::set_global_default(nowhere));
    });
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    metrics::with_local_recorder(&recorder, || tracing::subscriber::with_default(subscriber, action));
    let mut counted = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Gauge(value) => value.into_inner() as u64,
            DebugValue::Histogram(values) => values.len() as u64,
        };
        let labels: Vec<_> = key
            .key()
            .labels()
            .map(|label| [label.key(), label.value()].join("="))
            .collect();
        counted.insert(format!("{}{{{}}}", key.key().name(), labels.join(",")), value);
    }
    (counted, String::from_utf8(log.0.lock().unwrap().clone()).unwrap())
}
