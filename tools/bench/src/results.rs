//! What was measured, what was not, and what does not count.

use serde::Serialize;

use crate::series::Series;

/// All figures of a run of the benchmarks.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) figures: Vec<Figure>,
    /// Runs that have no number, and why.
    pub(crate) void: Vec<String>,
    /// What could not be run, and why.
    pub(crate) not_run: Vec<String>,
}

/// One figure with all its repetitions.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) suite: &'static str,
    pub(crate) subject: String,
    pub(crate) measure: &'static str,
    pub(crate) median: Option<f64>,
    pub(crate) values: Series,
}

impl Results {
    /// Says that a figure is going to be measured. Figures are shown in the order in which they are announced, where that in
    /// which they are measured is random.
    pub(crate) fn announce(&mut self, key: (&'static str, &str, &'static str)) {
        self.figure(key);
    }

    /// Adds the value of a round.
    pub(crate) fn add(&mut self, key: (&'static str, &str, &'static str), round: u32, value: f64) {
        let figure = self.figure(key);
        figure.values.push(round, value);
        figure.median = figure.values.median();
    }

    fn figure(&mut self, (suite, subject, measure): (&'static str, &str, &'static str)) -> &mut Figure {
        let is_it = |figure: &Figure| figure.suite == suite && figure.subject == subject && figure.measure == measure;
        let place = self.figures.iter().position(is_it).unwrap_or_else(|| {
            self.figures.push(Figure {
                suite,
                subject: subject.to_owned(),
                measure,
                median: None,
                values: Series::default(),
            });
            self.figures.len() - 1
        });
        &mut self.figures[place]
    }

    pub(crate) fn find(&self, suite: &str, subject: &str, measure: &str) -> Option<&Series> {
        let is_it = |figure: &&Figure| figure.suite == suite && figure.subject == subject && figure.measure == measure;
        self.figures.iter().find(is_it).map(|figure| &figure.values)
    }

    /// A run that does not count.
    pub(crate) fn void(&mut self, error: &anyhow::Error) {
        let why = format!("{error:#}");
        eprintln!("  no number: {why}");
        self.void.push(why);
    }
}

/// Says what was just measured, for whoever is waiting.
pub(crate) fn progress(step: &str) {
    eprintln!("  {step}");
}
