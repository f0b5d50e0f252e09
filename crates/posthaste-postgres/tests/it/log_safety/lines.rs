//! What was said in this thread.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// While there is only one subscriber, a line that is first met in a thread without it counts as wanted by nobody, in all
/// threads. So there are others.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| {
    let listens = || Dispatch::new(tracing_subscriber::registry());
    [listens(), listens()]
});

#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Begins to write down what is said, in this thread.
    pub fn install() -> (Self, DefaultGuard) {
        LazyLock::force(&OTHERS);
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The lines that have all of these texts.
    pub fn with(&self, texts: &[&str]) -> Vec<String> {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let has = |line: &&str| texts.iter().all(|text| line.contains(text));
        all.lines().filter(has).map(str::to_owned).collect()
    }
}
