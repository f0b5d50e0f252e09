use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Where tests are looked for.
const PLACES: [&str; 3] = ["crates", "examples", "xtask"];

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
        collect(place, &mut found).with_context(|| format!("cannot list {}", place.display()))?;
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

fn collect(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "node_modules" {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The backends that run the suite: the crates whose `tests/conformance.rs` calls its macro.
pub(super) fn backends(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let crates = root.join("crates");
    let mut backends = BTreeSet::new();
    for entry in fs::read_dir(&crates).with_context(|| format!("cannot list {}", crates.display()))? {
        let entry = entry?;
        let source = fs::read_to_string(entry.path().join("tests/conformance.rs")).unwrap_or_default();
        if source.contains("conformance!") || source.contains("conformance_suite!") {
            let name = entry.file_name().to_string_lossy().into_owned();
            backends.insert(match name.trim_start_matches("posthaste-") {
                "testkit" => "memory".to_owned(), // the kit's own store
                backend => backend.to_owned(),
            });
        }
    }
    Ok(backends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_and_its_backends_are_found() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("crates/posthaste-testkit/src/suite/claim.rs", ""),
            (
                "crates/posthaste-testkit/tests/conformance.rs",
                "posthaste_testkit::conformance!(Memory);",
            ),
            (
                "crates/posthaste-postgres/tests/conformance.rs",
                "posthaste_testkit::conformance_suite!(Pg);",
            ),
            ("crates/posthaste-cli/tests/conformance.rs", "// something else"),
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
        assert_eq!(files.len(), 5);
        assert_eq!(
            backends(root.path()).unwrap().into_iter().collect::<Vec<_>>(),
            ["memory", "postgres"]
        );
    }
}
