//! The finished SQL, as the repository keeps it for readers: one file for each database and table map.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use posthaste_sql::table::{BUILTIN_MAPS, Database};

use crate::support::Place;

const DATABASES: [(&str, Database); 3] = [
    ("postgres", Database::Postgres),
    ("mysql", Database::MySql),
    ("sqlite", Database::Sqlite),
];

/// Set to anything, it has the files written rather than compared.
const WRITE: &str = "POSTHASTE_WRITE_SQL";

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql")
}

/// What is printed for each file, by its path.
fn printed() -> Vec<(PathBuf, String)> {
    let place = Place::empty();
    let mut files = Vec::new();
    for (backend, database) in DATABASES {
        let mut print = |name: &str, map: &[&str]| {
            let path = kept().join(backend).join(format!("{name}.sql"));
            let arguments = [&["sql", "--backend", backend], map].concat();
            files.push((path, place.run(&arguments).success().stdout));
        };
        print("posthaste", &[]);
        if database == Database::Postgres {
            let log = [
                "--database-url",
                "postgres://localhost/any",
                "--set",
                "database.layout=log",
            ];
            print("posthaste-log", &log);
        }
        for builtin in &BUILTIN_MAPS {
            if database.refuses(builtin.map().unwrap().strategy()).is_none() {
                print(builtin.name, &["--map", builtin.name]);
            }
        }
    }
    files
}

/// A change of a statement is seen in review, for every table that it is for.
#[test]
fn every_statement_of_every_table_is_the_one_in_the_repository() {
    let files = printed();
    let write = std::env::var_os(WRITE).is_some();
    for (path, sql) in &files {
        if write {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, sql).unwrap();
        }
        let kept = fs::read_to_string(path).unwrap_or_default();
        let line = kept.lines().zip(sql.lines()).position(|(kept, now)| kept != now);
        assert!(
            kept == *sql,
            "{} is not what `posthaste sql` prints, from line {} on; {WRITE}=1 writes it anew",
            path.display(),
            line.unwrap_or_else(|| kept.lines().count().min(sql.lines().count())) + 1,
        );
    }
    let expected: BTreeSet<_> = files.into_iter().map(|(path, _)| path).collect();
    for (backend, _) in DATABASES {
        for file in fs::read_dir(kept().join(backend)).unwrap() {
            let path = file.unwrap().path();
            assert!(expected.contains(&path), "{} is of no table", path.display());
        }
    }
}
