//! Which crate may know which, and what the core must not know at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use crate::workspace;

pub(crate) const FIX: &str =
    "move what knows of a database to posthaste-sql or to its store, and let dependencies point to the core";

/// What each crate that users link may depend on. Whoever is not named here stands above them all.
const BELOW: [(&str, &[&str]); 12] = [
    ("posthaste-core", &[]),
    ("posthaste-derive", &["posthaste-core"]),
    ("posthaste-sql", &["posthaste-core"]),
    ("posthaste-kafka", &["posthaste-core"]),
    ("posthaste-relay", &["posthaste-core"]),
    ("posthaste-postgres", &["posthaste-core", "posthaste-sql"]),
    ("posthaste-mysql", &["posthaste-core", "posthaste-sql"]),
    ("posthaste-sqlite", &["posthaste-core", "posthaste-sql"]),
    ("posthaste-publishers", &["posthaste-core", "posthaste-kafka"]),
    ("posthaste-consumer", &["posthaste-core", "posthaste-kafka"]),
    ("posthaste-testing", &["posthaste-core", "posthaste-relay"]),
    (
        "posthaste-testkit",
        &[
            "posthaste-core",
            "posthaste-relay",
            "posthaste-sql",
            "posthaste-testing",
        ],
    ),
];

/// Databases, and what a statement in a string begins with.
const FOREIGN_TO_THE_CORE: [&str; 14] = [
    "postgres",
    "mysql",
    "mariadb",
    "sqlite",
    "sqlx",
    "\"select ",
    "\"insert ",
    "\"update ",
    "\"delete ",
    "\"create ",
    "\"alter ",
    "\"savepoint ",
    "\"release savepoint ",
    "\"begin",
];

/// What only one folder of a crate may use, so that the rest of it serves others as well.
const CONFINED: [(&str, &str, &str); 1] = [("posthaste-consumer/src", "kafka", "rdkafka::")];

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

/// Whether all of it holds; says what does not.
pub(crate) fn hold() -> bool {
    match faults(&workspace::root().join("crates")) {
        Ok(faults) => {
            for fault in &faults {
                eprintln!("{fault}");
            }
            faults.is_empty()
        }
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

fn faults(crates: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, below) in BELOW {
        let manifest = read(&crates.join(name).join("Cargo.toml"))?;
        faults.extend(upward(name, below, &manifest)?);
    }
    for_each_line(&crates.join("posthaste-core"), &mut |path, number, line| {
        faults.extend(foreign(line).map(|word| format!("{}:{number}: the core knows of {word}", path.display())));
    })?;
    for (source, folder, word) in CONFINED {
        let folder = crates.join(source).join(folder);
        for_each_line(&crates.join(source), &mut |path, number, line| {
            if line.contains(word) && !path.starts_with(&folder) {
                faults.push(format!(
                    "{}:{number}: {word} belongs in {}",
                    path.display(),
                    folder.display()
                ));
            }
        })?;
    }
    Ok(faults)
}

/// The dependencies of a crate that its place does not allow.
fn upward(name: &str, below: &[&str], manifest: &str) -> anyhow::Result<Vec<String>> {
    let manifest: Manifest = toml::from_str(manifest).with_context(|| format!("the manifest of {name}"))?;
    let ours = manifest
        .dependencies
        .into_keys()
        .filter(|other| other.starts_with("posthaste"));
    Ok(ours
        .filter(|other| !below.contains(&other.as_str()))
        .map(|other| format!("{name} must not depend on {other}"))
        .collect())
}

/// Every line of every file below a directory.
fn for_each_line(directory: &Path, see: &mut impl FnMut(&Path, usize, &str)) -> anyhow::Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            for_each_line(&path, see)?;
            continue;
        }
        for (number, line) in (1..).zip(read(&path)?.lines()) {
            see(&path, number, line);
        }
    }
    Ok(())
}

fn foreign(line: &str) -> Option<&'static str> {
    let line = line.to_lowercase();
    FOREIGN_TO_THE_CORE.into_iter().find(|word| line.contains(word))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_named() {
        let manifest =
            "[dependencies]\nposthaste-core.workspace = true\nposthaste-sql = { workspace = true }\ntokio = \"1\"\n";
        let faults = upward("posthaste-relay", &["posthaste-core"], manifest).unwrap();
        assert_eq!(faults, ["posthaste-relay must not depend on posthaste-sql"]);
    }

    #[test]
    fn tests_may_depend_on_whom_they_like() {
        let manifest = "[dependencies]\n[dev-dependencies]\nposthaste-relay.workspace = true\n";
        assert!(upward("posthaste-core", &[], manifest).unwrap().is_empty());
    }

    #[test]
    fn a_database_or_a_statement_in_the_core_is_named() {
        assert_eq!(foreign("    /// As PostgreSQL does it."), Some("postgres"));
        assert_eq!(foreign(r#"    format!("savepoint {self}")"#), Some("\"savepoint "));
        assert_eq!(foreign("    /// What becomes of a message that was selected."), None);
    }

    #[test]
    fn the_project_keeps_to_it() {
        assert_eq!(faults(&workspace::root().join("crates")).unwrap(), Vec::<String>::new());
    }
}
