//! What `--only` can name.

use crate::server::Kind;

/// Some packages whose tests belong together, and what they need besides.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) packages: &'static [&'static str],
    pub(super) servers: &'static [Kind],
    /// `PgBouncer`, Prometheus, and Python with drivers for the databases.
    pub(super) pgbouncer: bool,
    pub(super) prometheus: bool,
    pub(super) python: bool,
}

const NOTHING: Suite = Suite {
    name: "",
    packages: &[],
    servers: &[],
    pgbouncer: false,
    prometheus: false,
    python: false,
};

/// Each package is in one of them.
pub(super) const SUITES: [Suite; 9] = [
    Suite {
        name: "core",
        packages: &[
            "posthaste-core",
            "posthaste-derive",
            "posthaste-relay",
            "posthaste-sql",
            "posthaste-testing",
            "posthaste-testkit",
        ],
        ..NOTHING
    },
    Suite {
        name: "sqlite",
        packages: &["posthaste-sqlite"],
        ..NOTHING
    },
    Suite {
        name: "postgres",
        packages: &["posthaste-postgres"],
        servers: &[Kind::Postgres],
        pgbouncer: true,
        python: true,
        ..NOTHING
    },
    Suite {
        name: "mariadb",
        packages: &["posthaste-mysql"],
        servers: &[Kind::MariaDb],
        python: true,
        ..NOTHING
    },
    Suite {
        name: "publishers",
        packages: &["posthaste-kafka", "posthaste-publishers"],
        servers: &[Kind::Kafka],
        ..NOTHING
    },
    Suite {
        name: "consumer",
        packages: &["posthaste-consumer"],
        servers: &[Kind::Postgres, Kind::MariaDb, Kind::Kafka],
        ..NOTHING
    },
    Suite {
        name: "cli",
        packages: &["posthaste-cli"],
        servers: &[Kind::Postgres, Kind::MariaDb, Kind::Kafka],
        pgbouncer: true,
        prometheus: true,
        ..NOTHING
    },
    Suite {
        name: "examples",
        // And what they link, which needs every database and broker to be built.
        packages: &[
            "posthaste",
            "commerce",
            "donation",
            "example-diesel-async",
            "example-sea-orm",
            "logistics",
            "order-service",
            "usage",
        ],
        servers: &Kind::FIRST,
        ..NOTHING
    },
    Suite {
        name: "tools",
        packages: &["posthaste-bench", "posthaste-servers", "xtask"],
        servers: &Kind::FIRST,
        pgbouncer: true,
        prometheus: true,
        ..NOTHING
    },
];

/// The suite that a package is in.
pub(super) fn of(package: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.packages.contains(&package))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::workspace;

    #[test]
    fn each_package_of_the_workspace_is_in_one_suite() {
        let mut listed: Vec<_> = SUITES.iter().flat_map(|suite| suite.packages).copied().collect();
        listed.sort_unstable();
        let packages: BTreeSet<_> = manifests()
            .iter()
            .map(|manifest| {
                let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
                manifest["package"]["name"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(listed, packages.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Whoever adds the first test to such a target finds out here that it would not be run.
    #[test]
    fn a_target_that_is_not_tested_has_no_tests() {
        for manifest in manifests() {
            let text = fs::read_to_string(&manifest).unwrap();
            let table: toml::Table = text.parse().unwrap();
            let bins = table.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
            let is_left_out = |target: &toml::Value| target.get("test") == Some(&false.into());
            if !bins.chain(table.get("lib")).any(is_left_out) {
                continue;
            }
            let tests = files_with_tests(&manifest.with_file_name("src"));
            assert!(tests.is_empty(), "{} has `test = false`: {tests:?}", manifest.display());
        }
    }

    fn manifests() -> Vec<PathBuf> {
        let places = ["crates", "examples", "tools"].map(|place| workspace::root().join(place));
        let dirs = places.iter().flat_map(|place| fs::read_dir(place).unwrap());
        let manifests = dirs.map(|dir| dir.unwrap().path().join("Cargo.toml"));
        manifests.chain([workspace::root().join("xtask/Cargo.toml")]).collect()
    }

    fn files_with_tests(dir: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let (dirs, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
        let has_tests = |file: &PathBuf| {
            let text = fs::read_to_string(file).unwrap();
            text.contains("#[test]") || text.contains("#[tokio::test")
        };
        let here = files.into_iter().filter(has_tests);
        here.chain(dirs.iter().flat_map(|dir| files_with_tests(dir))).collect()
    }
}
