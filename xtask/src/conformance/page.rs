use std::collections::{BTreeMap, BTreeSet};

use super::{
    files::{SourceFile, Table},
    id::Id,
    promises::{Promises, Section},
    scan::Proof,
};

const HEAD: &str = "<!-- Written by `cargo xtask conformance`. Do not edit. -->\n\n";

const OVERVIEW: &str = "\
# Conformance

Every line below is a promise, with the number of tests that prove it and one or two of them; [the
details](conformance-details.md) name all. A test says what it proves in its documentation (`/// Proves B7.`), and `cargo
xtask test` runs them all. A dash means that no test does so yet.
";

const DETAILS: &str = "\
# Conformance in detail

Every test that proves a promise of [the overview](conformance.md). A case of the conformance suite runs on every table
that has what the case needs.
";

/// The overview and the details.
pub(super) struct Pages {
    pub(super) overview: String,
    pub(super) details: String,
}

/// A test in the order in which it is shown: those that run on most tables first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    elsewhere: usize,
    text: String,
}

/// Writes the pages.
pub(super) fn render(promises: &Promises, proofs: &[(SourceFile, Proof)], tables: &BTreeSet<Table>) -> Pages {
    let mut links: BTreeMap<Id, BTreeSet<Link>> = BTreeMap::new();
    for (file, proof) in proofs {
        for id in &proof.ids {
            links.entry(*id).or_default().insert(link(file, proof, tables));
        }
    }
    let count = |pitfalls| {
        let ids: Vec<_> = promises.ids().filter(|id| id.is_pitfall() == pitfalls).collect();
        (ids.iter().filter(|id| links.contains_key(id)).count(), ids.len())
    };
    let ((required, requirements), (avoided, pitfalls)) = (count(false), count(true));
    let proven =
        format!("Proven: **{required} of {requirements}** requirements, **{avoided} of {pitfalls}** pitfalls.");
    let names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
    let suite = format!("The suite runs on {} tables: {}.", names.len(), names.join(", "));
    let sections = |show: fn(&BTreeSet<Link>) -> String| {
        let table = |section| format!("\n{}", table(section, &links, show));
        promises.sections.iter().map(table).collect::<String>()
    };
    Pages {
        overview: format!("{HEAD}{OVERVIEW}\n{proven}\n{}", sections(some)),
        details: format!("{HEAD}{DETAILS}\n{suite}\n{}", sections(all)),
    }
}

fn table(section: &Section, links: &BTreeMap<Id, BTreeSet<Link>>, show: fn(&BTreeSet<Link>) -> String) -> String {
    let heading = format!("## {}\n\n| | | proven by |\n|---|---|---|\n", section.title);
    let rows = section.lines.iter().map(|(id, line)| {
        let tests = links.get(id).map_or_else(|| "—".to_owned(), show);
        format!("| {id} | {line} | {tests} |\n")
    });
    std::iter::once(heading).chain(rows).collect()
}

fn all(links: &BTreeSet<Link>) -> String {
    let texts: Vec<_> = links.iter().map(|link| link.text.as_str()).collect();
    texts.join("<br>")
}

/// The case that runs on most tables, and a test of its own.
fn some(links: &BTreeSet<Link>) -> String {
    let own = links.iter().find(|link| link.elsewhere == usize::MAX);
    let mut shown: Vec<_> = links.iter().take(if own.is_some() { 1 } else { 2 }).collect();
    shown.extend(own.filter(|own| !shown.contains(own)));
    let texts: Vec<_> = shown.iter().map(|link| link.text.as_str()).collect();
    match links.len() {
        1 => texts.join("<br>"),
        count => format!("{count} tests, among them<br>{}", texts.join("<br>")),
    }
}

/// Links lead to files and not to lines, so that the pages do not change with every edit.
fn link(file: &SourceFile, proof: &Proof, tables: &BTreeSet<Table>) -> Link {
    let text = format!("[{}](../{})", proof.test, file.path);
    if !file.is_suite {
        let elsewhere = usize::MAX;
        return Link { elsewhere, text };
    }
    let module = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    let case = format!("{module}::{}", proof.test);
    let runs = tables.iter().filter(|table| table.runs(&case)).count();
    Link {
        elsewhere: tables.len() - runs,
        text: format!("{text} on {runs} of {} tables", tables.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, is_suite: bool) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            is_suite,
        }
    }

    fn proof(test: &str, ids: &[&str]) -> Proof {
        Proof {
            test: test.to_owned(),
            ids: ids.iter().map(|id| id.parse().unwrap()).collect(),
            line: 1,
        }
    }

    #[test]
    fn proven_lines_link_to_their_tests_and_others_have_a_dash() {
        let proofs = [
            (file("crates/x/tests/b.rs", false), proof("leases_end", &["B7", "P8"])),
            (file("suite/claim.rs", true), proof("rows_come_back", &["B7"])),
        ];
        let pages = render(&Promises::load(), &proofs, &BTreeSet::new());

        let line = |page: &str, id: &str| {
            let start = format!("| {id} |");
            page.lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
        };
        let both = "[rows_come_back](../suite/claim.rs) on 0 of 0 tables<br>[leases_end](../crates/x/tests/b.rs) |";
        assert!(line(&pages.details, "B7").ends_with(&format!("| {both}")));
        assert!(line(&pages.overview, "B7").ends_with(&format!("| 2 tests, among them<br>{both}")));
        assert!(line(&pages.overview, "P8").ends_with("| [leases_end](../crates/x/tests/b.rs) |"));
        assert!(line(&pages.overview, "A1").ends_with("| — |"));
        assert!(
            pages
                .overview
                .contains("**1 of 64** requirements, **1 of 35** pitfalls")
        );
    }
}
