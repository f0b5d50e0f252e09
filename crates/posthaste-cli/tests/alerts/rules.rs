//! The file of rules: what `promtool` says of it, and what it promises in words.

use std::path::Path;
use std::process::Command;

use posthaste_servers::PrometheusServer;

use crate::support::{Place, Ran};
use crate::watch::without;

const RULES: &str = include_str!("../../assets/alerts.yml");
const UNIT_TESTS: &str = include_str!("../../assets/alerts.test.yml");
const RUNBOOK: &str = include_str!("../../../../docs/alerts.md");
const SCENARIOS: [&str; 2] = [include_str!("firing.rs"), include_str!("net.rs")];

fn promtool(args: &[&str], dir: &Path) {
    let mut promtool = Command::new(PrometheusServer::promtool().unwrap());
    Ran::of(promtool.args(args).current_dir(dir), "").success();
}

/// The values of a key, as the file writes it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let of_line = |line: &'a str| line.trim_start().trim_start_matches("- ").strip_prefix(key);
    text.lines().filter_map(of_line).map(str::trim).collect()
}

fn alerts() -> Vec<&'static str> {
    let alerts = values(RULES, "alert:");
    assert!(alerts.len() > 15, "the file was not understood: {alerts:?}");
    alerts
}

#[test]
fn promtool_accepts_the_rules_however_they_are_printed() {
    if without("prometheus") {
        return;
    }
    let place = Place::empty();
    let flags =
        "--backlog 5000 --oldest-age 1h --failures 100 --window 30m --selector env=~\"live|test\",job=\"posthaste\"";
    for flags in [Vec::new(), flags.split(' ').collect()] {
        let print = [&["alerts", "print"], &flags[..]].concat();
        place.write("rules.yml", &place.run(&print).success().stdout);
        promtool(&["check", "rules", "rules.yml"], &place.path(""));
    }
    let resource = place
        .run(&["alerts", "print", "--format", "kubernetes"])
        .success()
        .stdout;
    let (_, specification) = resource.split_once("\nspec:\n").unwrap();
    // What stands in a resource is what stands in a file, two columns further to the right.
    let indented = specification
        .lines()
        .map(|line| line.strip_prefix("  ").unwrap_or(line));
    place.write("rules.yml", &indented.collect::<Vec<_>>().join("\n"));
    promtool(&["check", "rules", "rules.yml"], &place.path(""));
}

/// Proves D9, E5.
#[test]
fn the_thresholds_are_those_of_their_unit_tests() {
    if without("prometheus") {
        return;
    }
    let place = Place::empty();
    place.write("alerts.yml", RULES);
    place.write("alerts.test.yml", UNIT_TESTS);
    promtool(&["test", "rules", "alerts.test.yml"], &place.path(""));
    for alert in alerts() {
        assert!(
            UNIT_TESTS.contains(&format!("alertname=\"{alert}\"")),
            "{alert} has no unit test"
        );
    }
}

#[test]
fn every_alert_is_seen_to_fire_and_to_clear() {
    for alert in alerts() {
        let quoted = format!("\"{alert}\"");
        let mentions: usize = SCENARIOS.iter().map(|text| text.matches(&quoted).count()).sum();
        assert!(mentions >= 2, "{alert} is in no scenario");
    }
}

#[test]
fn every_alert_has_a_severity_a_duration_a_runbook_and_a_command() {
    let rules: Vec<_> = RULES.split("- alert: ").skip(1).collect();
    for rule in rules {
        let alert = rule.lines().next().unwrap();
        let page = "https://github.com/posthaste-rs/posthaste/blob/main/docs/alerts.md";
        assert_eq!(
            values(rule, "runbook_url:"),
            [format!("{page}#{}", alert.to_lowercase())],
            "{alert}"
        );
        assert!(
            RUNBOOK.contains(&format!("\n### {alert}\n")),
            "{alert} is not in docs/alerts.md"
        );
        assert!(
            ["warning", "critical"].contains(&values(rule, "severity:")[0]),
            "{alert}"
        );
        assert_eq!(values(rule, "for:").len(), 1, "{alert}");
        assert_eq!(values(rule, "summary:").len(), 1, "{alert}");
        let (_, description) = rule.split_once("description: >-").unwrap();
        let command = description
            .split('`')
            .nth(1)
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>();
        assert!(
            command[0] == "posthaste" || command[0].starts_with('/'),
            "{alert}: {command:?}"
        );
    }
    let written = RUNBOOK
        .lines()
        .filter_map(|line| line.strip_prefix("### Posthaste"))
        .count();
    assert_eq!(
        written,
        alerts().len(),
        "docs/alerts.md has alerts that are not shipped"
    );
}
