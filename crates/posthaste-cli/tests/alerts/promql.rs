//! The metrics that an expression names.

use std::collections::BTreeSet;

/// What the names of our metrics begin with.
const PREFIXES: [&str; 3] = ["outbox_", "consumer_", "posthaste_"];

/// Every word that begins as our metrics do.
pub fn metrics(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

#[test]
fn metrics_are_found_among_functions_and_labels() {
    let expression = r#"sum by (job) (rate(outbox_a_count{net!="table"}[5m])) > 0 or consumer_b unless outbox_a_count"#;
    assert_eq!(metrics(expression), BTreeSet::from(["outbox_a_count", "consumer_b"]));
}
