//! What the consumer logs. Lines are told apart by the names that each test makes up.

use std::io::{self, Write};
use std::sync::{Mutex, Once};

use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Lines
    }
}

/// Begins to keep all lines of this process.
pub fn capture() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        tracing_subscriber::fmt()
            .with_env_filter("posthaste_consumer=debug")
            .with_ansi(false)
            .with_writer(Lines)
            .init();
    });
}

/// The lines with all of these words.
pub fn with(words: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    let text = String::from_utf8_lossy(&lines);
    let matching = text.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    matching.map(str::to_owned).collect()
}
