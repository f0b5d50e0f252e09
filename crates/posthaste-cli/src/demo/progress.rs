//! What is happening, on standard error: bars on a terminal, else a line for each event.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

pub(super) struct Progress {
    bars: MultiProgress,
    committed: ProgressBar,
    delivered: ProgressBar,
    status: ProgressBar,
}

impl Progress {
    pub(super) fn start(expected: u64) -> Self {
        let bars = MultiProgress::new();
        let bar = |name: &'static str, colour: &str| {
            let template = format!("{{prefix:>10}} {{bar:40.{colour}}} {{pos:>7}}");
            let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bars.add(ProgressBar::new(expected).with_style(style).with_prefix(name))
        };
        let committed = bar("committed", "blue");
        let delivered = bar("delivered", "green");
        let style = ProgressStyle::with_template("{elapsed:>10} {msg}");
        let status = ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let status = bars.add(status);
        Self {
            bars,
            committed,
            delivered,
            status,
        }
    }

    /// Says what is going on.
    pub(super) fn say(&self, what: &'static str) {
        self.status.set_message(what);
        if self.bars.is_hidden() {
            eprintln!("{:>5.1}s {what}", self.status.elapsed().as_secs_f64());
        }
    }

    /// Shows how far things are.
    pub(super) fn show(&self, committed: u64, delivered: usize) {
        for (bar, count) in [(&self.committed, committed), (&self.delivered, delivered as u64)] {
            bar.set_length(bar.length().unwrap_or_default().max(count));
            bar.set_position(count);
        }
        self.status.tick();
    }

    pub(super) fn finish(&self, committed: u64, delivered: usize) {
        self.show(committed, delivered);
        for bar in [&self.committed, &self.delivered] {
            bar.set_length(committed.max(1));
            bar.abandon();
        }
        self.status.finish_and_clear();
    }
}
