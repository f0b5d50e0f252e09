//! What was measured, as a table for people and as JSON for machines.

use std::fmt;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// One measurement, with all its repetitions.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// The median.
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The median of the ratios to what it was compared with.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Option<Target>,
    pub(crate) pass: Option<bool>,
    pub(crate) repetitions: Vec<Repetition>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Repetition {
    value: f64,
    ratio: Option<f64>,
}

/// What a figure is held to.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    ValueBelow(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RatioAtLeast(limit) => write!(f, "ratio ≥ {limit}"),
            Self::RatioAtMost(limit) => write!(f, "ratio ≤ {limit}"),
            Self::ValueBelow(limit) => write!(f, "< {limit}"),
        }
    }
}

impl Figure {
    /// A figure measured once or several times.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, values: &[f64]) -> Self {
        let repetition = |&value: &f64| Repetition { value, ratio: None };
        Self {
            name: name.into(),
            value: median(values),
            unit,
            ratio: None,
            target: None,
            pass: None,
            repetitions: values.iter().map(repetition).collect(),
        }
    }

    /// Relates each repetition to the one of `others` that was measured right before or after it.
    pub(crate) fn relative_to(mut self, others: &[f64]) -> Self {
        for (repetition, other) in self.repetitions.iter_mut().zip(others) {
            repetition.ratio = Some(repetition.value / other);
        }
        let ratios: Vec<f64> = self.repetitions.iter().filter_map(|r| r.ratio).collect();
        self.ratio = Some(median(&ratios));
        self
    }

    /// Holds the figure to a target.
    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self.pass = match target {
            Target::RatioAtLeast(limit) => self.ratio.map(|ratio| ratio >= limit),
            Target::RatioAtMost(limit) => self.ratio.map(|ratio| ratio <= limit),
            Target::ValueBelow(limit) => Some(self.value < limit),
        };
        self
    }
}

/// The middle of `values`; not a number if there are none.
fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The smallest of `values` that `percent` of them do not exceed; not a number if there are none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Says what was just measured, for whoever is waiting.
pub(crate) fn progress(step: &str) {
    eprintln!("  {step}");
}

/// Prints all figures.
pub(crate) fn table(figures: &[Figure]) {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["benchmark", "median", "unit", "ratio", "repetitions", "target", ""]);
    for figure in figures {
        let repetition = |r: &Repetition| match r.ratio {
            Some(ratio) => format!("{} ({ratio:.2})", number(r.value)),
            None => number(r.value),
        };
        let repetitions: Vec<String> = figure.repetitions.iter().map(repetition).collect();
        table.add_row([
            figure.name.clone(),
            number(figure.value),
            figure.unit.to_owned(),
            figure.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            repetitions.join("  "),
            figure.target.map(|target| target.to_string()).unwrap_or_default(),
            figure
                .pass
                .map_or("", |pass| if pass { "PASS" } else { "FAIL" })
                .to_owned(),
        ]);
    }
    println!("{table}");
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_repetition_and_their_median_is_what_counts() {
        let figure = Figure::new("f", "rows/s", &[50.0, 200.0, 90.0]).relative_to(&[100.0, 100.0, 100.0]);
        assert!((figure.value - 90.0).abs() < f64::EPSILON);
        let figure = figure.target(Target::RatioAtLeast(0.9));
        assert_eq!(figure.pass, Some(true));
        let figure = figure.target(Target::RatioAtLeast(0.91));
        assert_eq!(figure.pass, Some(false));
        let figure = figure.target(Target::RatioAtMost(0.9));
        assert_eq!(figure.pass, Some(true));
        assert_eq!(figure.target(Target::RatioAtMost(0.89)).pass, Some(false));
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert!((percentile(&values, 99) - 198.0).abs() < f64::EPSILON);
        assert!((percentile(&values[..1], 50) - 200.0).abs() < f64::EPSILON);
        assert!(percentile(&[], 50).is_nan());
    }
}
