//! A table's labels for the states.

use super::names::plain;
use super::text;
use crate::table::{Kind, LiveColumn};

/// The section `[states]`, and what is to be decided about it.
#[derive(Debug, Default)]
pub(super) struct Labels {
    pub(super) lines: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// States and what people call them, in the order in which a row goes through them.
const LABELS: [(&str, &[&str]); 5] = [
    (
        "pending",
        &[
            "pending", "new", "ready", "queued", "created", "unsent", "open", "waiting",
        ],
    ),
    ("waiting", &["retry", "retrying", "failed", "error"]),
    (
        "processing",
        &[
            "processing",
            "inprogress",
            "inflight",
            "claimed",
            "locked",
            "leased",
            "running",
            "sending",
            "picked",
        ],
    ),
    (
        "delivered",
        &[
            "delivered",
            "sent",
            "published",
            "completed",
            "processed",
            "done",
            "success",
            "succeeded",
        ],
    ),
    (
        "dead",
        &[
            "dead",
            "deadletter",
            "deadlettered",
            "abandoned",
            "exhausted",
            "poison",
            "failed",
            "error",
        ],
    ),
];

/// The labels of a column.
pub(super) fn of(status: &LiveColumn, kind: Kind, leased: bool) -> Labels {
    match kind {
        Kind::Text => texts(status, leased),
        Kind::Integer => numbers(status, leased),
        _ => Labels {
            lines: vec![
                "# To decide: true and false are two labels, and a queue has three states at least.".to_owned(),
            ],
            notes: vec![format!(
                "{} is true or false, but a queue has three states at least: pending, delivered and dead; make it a text",
                status.name
            )],
        },
    }
}

fn needed(leased: bool) -> impl Iterator<Item = &'static str> {
    let states = ["pending", "processing", "delivered", "dead"];
    states.into_iter().filter(move |state| leased || *state != "processing")
}

fn texts(status: &LiveColumn, leased: bool) -> Labels {
    let mut values: Vec<String> = status.values.clone();
    values.extend(default_text(status));
    values.sort();
    values.dedup();
    let mut labels = Labels::default();
    let mut used: Vec<&str> = Vec::new();
    let known = |state: &str, used: &[&str]| {
        let (_, names) = LABELS.iter().find(|(name, _)| *name == state)?;
        names.iter().find_map(|name| {
            values
                .iter()
                .find(|value| plain(value) == *name && !used.contains(&value.as_str()))
        })
    };
    let mut found = Vec::new();
    for state in needed(leased) {
        let label = known(state, &used);
        used.extend(label.map(String::as_str));
        found.push((state, label));
    }
    // One label that is left for one state that has none.
    let mut left = values.iter().filter(|value| !used.contains(&value.as_str()));
    let only = left.next().filter(|_| left.next().is_none());
    let only = only.filter(|_| found.iter().filter(|(_, label)| label.is_none()).count() == 1);
    used.extend(only.map(String::as_str));
    for (state, label) in found {
        if let Some(label) = label {
            labels.lines.push(format!("{state} = {}", text(label)));
        } else if let Some(label) = only {
            labels.lines.push(format!("{state} = {} # a guess", text(label)));
            labels.notes.push(format!(
                "is {} the label that {} has for {state}? It is the only one that is left",
                text(label),
                status.name
            ));
        } else {
            let label = in_style(state, &values);
            labels.lines.push(format!("{state} = {} # a guess", text(&label)));
            labels.notes.push(format!(
                "which label does {} have for {state}? No row and no constraint says it, {label} is a guess",
                status.name
            ));
        }
    }
    if let Some(label) = known("waiting", &used) {
        used.push(label);
        labels.lines.push(format!("waiting = {} # a guess", text(label)));
        labels.notes.push(format!(
            "are rows with {} in {} to be tried again? As the label for waiting they are claimed like new ones, however old they \
             are; leave the line out if they were given up",
            text(label),
            status.name
        ));
    }
    for value in values.iter().filter(|value| !used.contains(&value.as_str())) {
        labels.notes.push(format!(
            "what does {} mean in {}? Rows with it are left alone",
            text(value),
            status.name
        ));
    }
    labels
}

fn numbers(status: &LiveColumn, leased: bool) -> Labels {
    let mut values: Vec<i64> = status.values.iter().filter_map(|value| value.parse().ok()).collect();
    values.sort_unstable();
    values.dedup();
    let names: Vec<_> = needed(leased).collect();
    let mut unused = values.last().map_or(0, |last| last + 1);
    while values.len() < names.len() {
        values.push(unused);
        unused += 1;
    }
    let default = status
        .default
        .as_deref()
        .and_then(|default| default.trim_matches(['\'', '(', ')']).parse().ok());
    if let Some(place) = values.iter().position(|value| Some(*value) == default) {
        values[..=place].rotate_right(1);
    }
    let lines = names
        .iter()
        .zip(&values)
        .map(|(state, value)| format!("{state} = {value} # a guess"));
    Labels {
        lines: lines.collect(),
        notes: vec![format!(
            "which number does {} have for which state? All of them are guesses",
            status.name
        )],
    }
}

/// The text between the quotes of a default such as `'NEW'::character varying`; MySQL has it without quotes.
fn default_text(status: &LiveColumn) -> Option<String> {
    let default = status.default.as_deref()?;
    let label = match default.split_once('\'') {
        Some((_, rest)) => rest.split('\'').next().unwrap_or_default(),
        None => default,
    };
    let is_label = !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || "_- ".contains(c));
    (is_label && !label.eq_ignore_ascii_case("null")).then(|| label.to_owned())
}

fn in_style(state: &str, values: &[String]) -> String {
    let lower = values.iter().any(|value| value.chars().any(char::is_lowercase));
    let label = if lower { state.to_owned() } else { state.to_uppercase() };
    // A label that is taken would be refused.
    if values.contains(&label) { label + "_" } else { label }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that says BUSY must not be told PROCESSING, which its constraint refuses.
    #[test]
    fn the_one_label_that_is_left_is_proposed_for_the_one_state_without() {
        let status = LiveColumn {
            values: ["NEW", "BUSY", "SENT", "FAILED"].map(str::to_owned).to_vec(),
            ..LiveColumn::default()
        };
        let labels = texts(&status, true);
        assert!(
            labels.lines.contains(&"processing = \"BUSY\" # a guess".to_owned()),
            "{labels:?}"
        );
        assert_eq!(labels.notes.len(), 1, "{labels:?}");
    }
}
