//! Bar charts.

use std::fmt::Write;

use crate::output::number::number;
use crate::series::Series;

const LABEL_WIDTH: f64 = 390.0;
const BAR_WIDTH: f64 = 330.0;
const WIDTH: f64 = LABEL_WIDTH + BAR_WIDTH + 130.0;
const ROW_HEIGHT: f64 = 24.0;
const TOP: f64 = 44.0;

/// One bar, with the spread of its repetitions.
#[derive(Debug)]
pub(super) struct Bar {
    label: String,
    pub(super) median: f64,
    spread: (f64, f64),
    /// Whether it is the one that the others are compared with.
    stands_out: bool,
}

impl Bar {
    pub(super) fn of(label: &str, series: &Series, stands_out: bool) -> Option<Self> {
        Some(Self {
            label: label.to_owned(),
            median: series.median()?,
            spread: series.spread()?,
            stands_out,
        })
    }
}

/// Horizontal bars from zero, each with its median as a number and a line from its smallest to its largest value.
pub(super) fn bars(title: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.spread.1).fold(f64::MIN_POSITIVE, f64::max);
    let scale = BAR_WIDTH / longest;
    let mut rows = String::new();
    let mut top = TOP;
    for bar in bars {
        row(&mut rows, bar, top, scale).expect("a String takes all that is written");
        top += ROW_HEIGHT;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{}</text>\n{rows}</svg>\n",
        escaped(title),
        height = top + 10.0,
    )
}

fn row(out: &mut String, bar: &Bar, top: f64, scale: f64) -> std::fmt::Result {
    let (middle, baseline) = (top + ROW_HEIGHT / 2.0, top + ROW_HEIGHT / 2.0 + 4.5);
    let colour = if bar.stands_out { "#1f6feb" } else { "#9aa4b2" };
    let (from, to) = (LABEL_WIDTH + bar.spread.0 * scale, LABEL_WIDTH + bar.spread.1 * scale);
    writeln!(
        out,
        "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>",
        LABEL_WIDTH - 8.0,
        escaped(&bar.label)
    )?;
    writeln!(
        out,
        "<rect x=\"{LABEL_WIDTH}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\"/>",
        top + 4.0,
        bar.median * scale,
        ROW_HEIGHT - 8.0
    )?;
    writeln!(
        out,
        "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#111\"/>"
    )?;
    writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{baseline}\">{}</text>",
        to + 6.0,
        number(bar.median)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_labels_are_escaped() {
        let series: Series = [50.0, 100.0, 200.0].into_iter().collect();
        let svg = bars("a & b", &[Bar::of("x < y", &series, true).unwrap()]);
        assert!(svg.contains("a &amp; b") && svg.contains("x &lt; y"));
        assert!(svg.contains("width=\"165.0\""), "{svg}");
        assert!(svg.contains(&format!("x2=\"{:.1}\"", LABEL_WIDTH + BAR_WIDTH)));
        assert!(Bar::of("", &Series::default(), false).is_none());
    }
}
