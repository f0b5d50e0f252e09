use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Where tests are looked for.
const PLACES: [&str; 4] = ["crates", "examples", "tools", "xtask"];

/// Where each public function is a case that every backend runs.
const SUITE: &str = "crates/posthaste-testkit/src/suite/";

/// A Rust file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceFile {
    /// From the root of the workspace.
    pub(super) path: String,
    pub(super) is_suite: bool,
}

/// All Rust files, in the order of their paths.
pub(super) fn sources(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    for place in PLACES
        .map(|place| root.join(place))
        .iter()
        .filter(|place| place.is_dir())
    {
        collect(place, "rs", &mut found).with_context(|| format!("cannot list {}", place.display()))?;
    }
    let mut files: Vec<_> = found
        .iter()
        .filter_map(|path| path.strip_prefix(root).ok()?.to_str().map(str::to_owned))
        .map(|path| SourceFile {
            is_suite: path.starts_with(SUITE),
            path,
        })
        .collect();
    files.sort();
    Ok(files)
}

fn collect(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "node_modules" {
            collect(&path, extension, found)?;
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// How the snapshot is called in which a table's tests keep the cases that are not for it.
const LEFT_OUT: &str = "__some_cases_are_not_for_it.snap";

/// A table on which the suite runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Table {
    /// The store and the map, such as `mysql/donation`.
    pub(super) name: String,
    left_out: BTreeSet<String>,
}

impl Table {
    /// Whether it runs a case, such as `claim::rows_come_back`.
    pub(super) fn runs(&self, case: &str) -> bool {
        !self.left_out.contains(case)
    }
}

/// The tables on which the suite runs, by the snapshots that each of them keeps.
pub(super) fn tables(root: &Path) -> anyhow::Result<BTreeSet<Table>> {
    let crates = root.join("crates");
    let mut tables = BTreeSet::new();
    for entry in fs::read_dir(&crates).with_context(|| format!("cannot list {}", crates.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let store = match name.trim_start_matches("posthaste-") {
            "testkit" => "memory", // the kit's own store
            store => store,
        };
        let mut snapshots = Vec::new();
        let tests = entry.path().join("tests");
        if tests.is_dir() {
            collect(&tests, "snap", &mut snapshots).with_context(|| format!("cannot list {}", tests.display()))?;
        }
        for path in snapshots {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(table) = file.strip_suffix(LEFT_OUT) else {
                continue;
            };
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let case = |line: &str| {
                line.split(' ')
                    .next()
                    .filter(|name| name.contains("::"))
                    .map(str::to_owned)
            };
            tables.insert(Table {
                // Before it stand the test program and its modules.
                name: format!("{store}/{}", table.rsplit("__").next().unwrap_or(table)),
                left_out: text.lines().filter_map(case).collect(),
            });
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_and_its_tables_are_found() {
        let root = tempfile::tempdir().unwrap();
        let left_out = "---\nsource: x\n---\n1 of 2 cases run\nclaim::a needs Key\n";
        for (path, text) in [
            ("crates/posthaste-testkit/src/suite/claim.rs", ""),
            (
                "crates/posthaste-testkit/tests/it/snapshots/it__conformance__some_cases_are_not_for_it.snap",
                "---\n---\n2 of 2 cases run\n",
            ),
            (
                "crates/posthaste-mysql/tests/it/tables/snapshots/it__tables__usage__some_cases_are_not_for_it.snap",
                left_out,
            ),
            (
                "crates/posthaste-mysql/tests/it/snapshots/it__statements__list.snap",
                "claim::b",
            ),
            ("crates/posthaste-cli/target/debug/out.rs", ""),
            ("examples/shop/main.rs", ""),
            ("docs/page.rs", ""),
        ] {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        let files = sources(root.path()).unwrap();
        let suite: Vec<_> = files
            .iter()
            .filter(|file| file.is_suite)
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(suite, ["crates/posthaste-testkit/src/suite/claim.rs"]);
        assert_eq!(files.len(), 2);
        let tables = tables(root.path()).unwrap();
        let runs = |case: &str| {
            let run = tables.iter().filter(|table| table.runs(case));
            run.map(|table| table.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(runs("claim::a"), ["memory/conformance"]);
        assert_eq!(runs("claim::b"), ["memory/conformance", "mysql/usage"]);
    }
}
