//! Plans and reports for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use humantime_serde::re::humantime::format_duration;
use posthaste_kafka::topics::{Applied, Change, Difference, Outcome, Plan, PlannedTopic, Report, TopicState};

pub(super) fn of_plan(plan: &Plan) -> String {
    let width = width(plan.topics.iter().map(|topic| topic.topic.as_str()));
    let mut lines = Lines::default();
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    for topic in &plan.topics {
        let (mark, text) = planned(topic);
        *counts.entry(mark).or_default() += 1;
        lines.add(format_args!("{mark} {:<width$}  {text}", topic.topic));
        lines.differences(topic.differences(), true);
    }
    let count = |mark| counts.get(&mark).copied().unwrap_or_default();
    lines.add(format_args!(
        "\n{} to create, {} to change, {} as declared, {} not to be had by `posthaste topics apply` alone",
        count('+'),
        count('~'),
        count('='),
        count('!'),
    ));
    lines.0
}

fn planned(topic: &PlannedTopic) -> (char, String) {
    match &topic.state {
        TopicState::Create {
            partitions,
            replication_factor,
            config,
            refusal,
        } => {
            let text = match refusal {
                Some(refusal) => format!("cannot be created: {refusal}"),
                None => format!("create with {}", shape(*partitions, *replication_factor, config)),
            };
            (if refusal.is_some() { '!' } else { '+' }, text)
        }
        TopicState::AsDeclared => ('=', "as declared".to_owned()),
        TopicState::Differs { differences } => {
            let all = differences.iter().all(|difference| difference.change == Change::Apply);
            (if all { '~' } else { '!' }, "differs".to_owned())
        }
    }
}

fn shape(partitions: u32, replicas: Option<u32>, config: &BTreeMap<String, String>) -> String {
    let plural = if partitions == 1 { "" } else { "s" };
    let replicas = replicas.map_or_else(|| "default".to_owned(), |count| count.to_string());
    let mut text = format!("{partitions} partition{plural}, replication factor {replicas}");
    for (name, value) in config {
        write!(text, ", {name} {}", readable(name, value)).expect("a String takes all that is written");
    }
    text
}

pub(super) fn of_report(report: &Report) -> String {
    let width = width(report.topics.iter().map(|topic| topic.topic.as_str()));
    let mut lines = Lines::default();
    for topic in &report.topics {
        let (mark, text) = applied(topic);
        lines.add(format_args!("{mark} {:<width$}  {text}", topic.topic));
        if !matches!(topic.outcome, Outcome::Failed { .. }) {
            lines.differences(&topic.left, false);
        }
    }
    let count = |is: fn(&Outcome) -> bool| report.topics.iter().filter(|topic| is(&topic.outcome)).count();
    let left = report.topics.iter().filter(|topic| !topic.left.is_empty()).count();
    lines.add(format_args!(
        "\n{} created, {} changed, {} failed, {left} still different",
        count(|outcome| *outcome == Outcome::Created),
        count(|outcome| matches!(outcome, Outcome::Changed { .. })),
        count(|outcome| matches!(outcome, Outcome::Failed { .. })),
    ));
    lines.0
}

fn applied(topic: &Applied) -> (char, String) {
    match &topic.outcome {
        Outcome::Created => ('+', "created".to_owned()),
        Outcome::CreatedByOthers => ('=', "created by another process in the meantime".to_owned()),
        Outcome::Changed { fields } => ('~', format!("changed {}", fields.join(", "))),
        Outcome::Failed { reason } => ('!', format!("failed: {reason}")),
        _ if topic.left.is_empty() => ('=', "as declared".to_owned()),
        _ => ('!', "left as it is".to_owned()),
    }
}

fn width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).max().unwrap_or_default()
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a String takes all that is written");
    }

    fn differences(&mut self, differences: &[Difference], planned: bool) {
        for difference in differences {
            let Difference {
                field, found, declared, ..
            } = difference;
            let (mark, when) = match difference.change {
                Change::Apply if planned => ('~', ""),
                Change::GrowPartitions => ('!', "; only with --grow-partitions"),
                Change::AllowLoss => ('!', "; only with --allow-loss"),
                _ => ('!', ""),
            };
            let note = match (when, &difference.note) {
                (_, None) => String::new(),
                ("", Some(note)) => format!("; {note}"),
                (_, Some(note)) => format!(": {note}"),
            };
            self.add(format_args!(
                "    {mark} {field}: {} -> {}{when}{note}",
                readable(field, found),
                readable(field, declared)
            ));
        }
    }
}

/// A time in milliseconds as it is written in the settings.
fn readable(name: &str, value: &str) -> String {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    match value.parse::<i64>().map(u64::try_from) {
        _ if name.strip_suffix(".ms").is_none() => value.to_owned(),
        Ok(Ok(millis)) if millis > 0 && millis % DAY == 0 => format!("{value} ({}d)", millis / DAY),
        Ok(Ok(millis)) => format!("{value} ({})", format_duration(Duration::from_millis(millis))),
        Ok(Err(_)) => format!("{value} (forever)"),
        Err(_) => value.to_owned(),
    }
}
