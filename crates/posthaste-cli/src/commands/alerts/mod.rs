//! `posthaste alerts`

mod rules;
mod selector;

use std::io::{Write, stdout};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use humantime_serde::re::humantime::parse_duration;

use rules::Rules;
use selector::Selector;

/// Alerting rules for Prometheus
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Alerts {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste alerts print > posthaste-alerts.yml
  posthaste alerts print --backlog 5000 --oldest-age 15m
  posthaste alerts print --selector 'job=\"posthaste\",env=\"live\"'
  posthaste alerts print --format kubernetes --label release=prometheus | kubectl apply -f -";

#[derive(Debug, Subcommand)]
enum Action {
    Print(Print),
}

/// Print the rules, to be named in `rule_files` of Prometheus
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct Print {
    /// More pending messages than this are a backlog
    #[arg(long, value_name = "MESSAGES", default_value_t = 1000)]
    backlog: u64,
    /// An undelivered message may be so old
    #[arg(long, value_name = "AGE", default_value = "5m", value_parser = whole_seconds)]
    oldest_age: Duration,
    /// So many deliveries may fail in a minute
    #[arg(long, value_name = "PER_MINUTE", default_value_t = 10)]
    failures: u64,
    /// How long an alert lasts after a dead letter, a lost lease and other events
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = whole_seconds)]
    window: Duration,
    /// Only metrics with these labels, such as `job="posthaste"`
    #[arg(long, value_name = "MATCHERS")]
    selector: Option<Selector>,
    /// A file of rules, or the resource `PrometheusRule` of the Prometheus Operator
    #[arg(long, value_enum, default_value_t = Format::Prometheus)]
    format: Format,
    /// A label of the resource, by which the operator selects its rules; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Prometheus,
    Kubernetes,
}

impl Alerts {
    pub fn run(&self) -> anyhow::Result<()> {
        let Action::Print(print) = &self.action;
        stdout().write_all(print.text()?.as_bytes())?;
        Ok(())
    }
}

impl Print {
    fn text(&self) -> anyhow::Result<String> {
        let mut rules = Rules::shipped();
        rules.set("--backlog", &self.backlog.to_string());
        rules.set("--oldest-age", &self.oldest_age.as_secs().to_string());
        rules.set("--failures", &self.failures.to_string());
        rules.set("--window", &rules::duration(self.window));
        if let Some(selector) = &self.selector {
            rules.select(selector);
        }
        if self.format == Format::Kubernetes {
            return Ok(rules.as_resource(&self.label));
        }
        anyhow::ensure!(
            self.label.is_empty(),
            "--label is for the resource of --format kubernetes; a file of rules has no labels of its own"
        );
        Ok(rules.into_text())
    }
}

/// Prometheus compares and counts in whole seconds here, and a window of none has no events.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    if duration.as_secs() == 0 || duration.subsec_nanos() > 0 {
        return Err("write whole seconds, such as 90s or 5m".to_owned());
    }
    Ok(duration)
}

fn label(text: &str) -> Result<(String, String), String> {
    let is_plain = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        !part.is_empty() && part.chars().all(allowed)
    };
    match text.split_once('=') {
        Some((name, value)) if is_plain(name) && is_plain(value) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write a label of Kubernetes, such as release=prometheus".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        alerts: Alerts,
    }

    fn printed(flags: &[&str]) -> anyhow::Result<String> {
        let line = Line::try_parse_from([&["alerts", "print"], flags].concat())?;
        let Action::Print(print) = line.alerts.action;
        print.text()
    }

    #[test]
    fn without_flags_the_file_is_printed_as_it_is() {
        assert_eq!(printed(&[]).unwrap(), rules::FILE);
    }

    #[test]
    fn thresholds_are_set_where_the_file_has_their_flags() {
        let flags = "--backlog 7 --oldest-age 2h --failures 3 --window 1h";
        let text = printed(&flags.split(' ').collect::<Vec<_>>()).unwrap();
        for part in [
            "(outbox_pending_count) > 7 # --backlog\n",
            "(outbox_oldest_age_seconds) > 7200 # --oldest-age\n",
            "(increase(outbox_failed_count[5m])) / 5 > 3 # --failures\n",
            "(outbox_dlq_count unless last_over_time(outbox_dlq_count[1h] offset 1h)) # --window\n",
            "or increase(outbox_dlq_count[1h]) # --window\n",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert_eq!(text.lines().count(), rules::FILE.lines().count());
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for flags in [
            ["--oldest-age", "0s"],
            ["--window", "1500ms"],
            ["--backlog", "-1"],
            ["--selector", "job"],
            ["--label", "release"],
            ["--label", "a=b: c"],
            ["--label", "release=prometheus"],
        ] {
            assert!(printed(&flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn the_resource_has_the_rules_below_its_specification() {
        let text = printed(&["--format", "kubernetes", "--label", "release=prometheus"]).unwrap();
        let head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: posthaste\n  labels:\n    \
                    release: \"prometheus\"\nspec:\n";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("\n  groups:\n    - name: posthaste\n"), "{text}");
        let plain = printed(&["--format", "kubernetes"]).unwrap();
        assert!(
            !plain.contains("    release:") && !plain.contains("  labels:\nspec"),
            "{plain}"
        );
    }
}
