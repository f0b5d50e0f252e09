//! The file of rules, and what flags change in it.

use std::time::Duration;

use super::selector::Selector;

/// What is shipped. It is valid as it stands.
pub(super) const FILE: &str = include_str!("../../../assets/alerts.yml");

/// What the names of our metrics begin with.
const PREFIX: &str = "outbox_";

pub(super) struct Rules(Vec<String>);

impl Rules {
    pub(super) fn shipped() -> Self {
        Self(FILE.lines().map(str::to_owned).collect())
    }

    /// Sets the last number, or duration, of each line that ends with the flag as a comment.
    pub(super) fn set(&mut self, flag: &str, value: &str) {
        let mark = format!(" # {flag}");
        for line in &mut self.0 {
            if let Some(expression) = line.strip_suffix(&mark) {
                *line = format!("{}{mark}", with_last_number(expression, value));
            }
        }
    }

    /// Adds the matchers to every metric of every expression.
    pub(super) fn select(&mut self, selector: &Selector) {
        for line in expressions(&mut self.0) {
            *line = selected(line, selector.as_str());
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0.into_iter().map(|line| line + "\n").collect()
    }

    /// The resource of the Prometheus Operator that has the rules.
    pub(super) fn as_resource(&self, labels: &[(String, String)]) -> String {
        let is_comment = |line: &&String| line.starts_with('#');
        let comment = self.0.iter().take_while(is_comment).map(|line| format!("{line}\n"));
        let rules = self.0.iter().skip_while(is_comment).map(|line| match line.as_str() {
            "" => "\n".to_owned(),
            line => format!("  {line}\n"),
        });
        let head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: posthaste\n";
        let labels_key = if labels.is_empty() { "" } else { "  labels:\n" };
        let labels = labels.iter().map(|(name, value)| format!("    {name}: \"{value}\"\n"));
        let parts = comment.chain([head.to_owned(), labels_key.to_owned()]).chain(labels);
        parts.chain(["spec:\n".to_owned()]).chain(rules).collect()
    }
}

/// A duration as Prometheus writes it, in its largest whole unit.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{seconds}s"),
        |(unit, letter)| format!("{}{letter}", seconds / unit),
    )
}

/// The lines that are PromQL: between `expr: |` and the next key, which is `for`.
fn expressions(lines: &mut [String]) -> impl Iterator<Item = &mut String> {
    let mut inside = false;
    lines.iter_mut().filter(move |line| {
        let text = line.trim_start();
        let was_inside = inside && !text.starts_with("for:");
        inside = was_inside || text == "expr: |";
        was_inside
    })
}

fn with_last_number(expression: &str, value: &str) -> String {
    let is_unit = |c: char| c.is_ascii_lowercase();
    let Some(last) = expression.rfind(|c: char| c.is_ascii_digit()) else {
        return expression.to_owned();
    };
    let first = expression[..last]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |before| before + 1);
    let rest = expression[last + 1..].trim_start_matches(is_unit);
    format!("{}{value}{rest}", &expression[..first])
}

fn selected(line: &str, matchers: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (before, metrics) = line.split_once(PREFIX).unwrap_or((line, ""));
    if metrics.is_empty() {
        return line.to_owned();
    }
    let metrics = metrics.split(PREFIX).map(|part| {
        let (name, rest) = part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len()));
        match rest.strip_prefix('{') {
            Some(others) => format!("{PREFIX}{name}{{{matchers}, {others}"),
            None => format!("{PREFIX}{name}{{{matchers}}}{rest}"),
        }
    });
    std::iter::once(before.to_owned()).chain(metrics).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_in_every_expression_and_nowhere_else() {
        let mut rules = Rules::shipped();
        rules.select(&r#"job="x""#.parse().unwrap());
        let text = rules.into_text();
        for part in [
            "sum by (job, namespace) (outbox_pending_count{job=\"x\"}) > 1000 # --backlog\n",
            "last_over_time(outbox_dlq_count{job=\"x\"}[1h] offset 15m)",
            "outbox_dead_letter_net_count{job=\"x\", net!=\"table\", outcome=\"ok\"}[15m]",
        ] {
            assert!(text.contains(part), "{part}");
        }
        for (line, shipped) in text.lines().zip(FILE.lines()) {
            let metrics = line.matches(PREFIX).count();
            let is_comment = shipped.starts_with('#');
            let expected = if is_comment { 0 } else { metrics };
            assert_eq!(line.matches("{job=\"x\"").count(), expected, "{line}");
        }
    }

    #[test]
    fn the_last_number_is_replaced_with_its_unit() {
        assert_eq!(with_last_number("60 * rate(x[5m]) > 10", "3"), "60 * rate(x[5m]) > 3");
        assert_eq!(with_last_number("increase(x[15m])", "1h"), "increase(x[1h])");
        assert_eq!(with_last_number("nothing", "1"), "nothing");
    }

    #[test]
    fn durations_are_written_in_whole_units() {
        let shown = [90, 900, 7200, 172_800].map(|seconds| duration(Duration::from_secs(seconds)));
        assert_eq!(shown, ["90s", "15m", "2h", "2d"]);
    }
}
