use std::collections::{BTreeMap, BTreeSet};

use super::{
    files::SourceFile,
    id::Id,
    promises::{Promises, Section},
    scan::Proof,
};

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask conformance`. Do not edit. -->

# Conformance

Every line below is a promise, and beside it stand the tests that prove it. A test says which ones in its
documentation (`/// Proves B7.`), and `cargo xtask test` runs them all. A dash means that no test does so yet.
";

/// Writes the page.
pub(super) fn render(promises: &Promises, proofs: &[(SourceFile, Proof)], backends: &BTreeSet<String>) -> String {
    let mut links: BTreeMap<Id, BTreeSet<String>> = BTreeMap::new();
    for (file, proof) in proofs {
        for id in &proof.ids {
            links.entry(*id).or_default().insert(link(file, proof, backends));
        }
    }
    let count = |pitfalls| {
        let ids: Vec<_> = promises.ids().filter(|id| id.is_pitfall() == pitfalls).collect();
        (ids.iter().filter(|id| links.contains_key(id)).count(), ids.len())
    };
    let ((required, requirements), (avoided, pitfalls)) = (count(false), count(true));

    let mut page = vec![
        INTRODUCTION.to_owned(),
        format!("Proven: **{required} of {requirements}** requirements, **{avoided} of {pitfalls}** pitfalls.\n"),
    ];
    page.extend(promises.sections.iter().map(|section| table(section, &links)));
    page.join("\n")
}

fn table(section: &Section, links: &BTreeMap<Id, BTreeSet<String>>) -> String {
    let heading = format!("## {}\n\n| | | proven by |\n|---|---|---|\n", section.title);
    let rows = section.lines.iter().map(|(id, line)| {
        let tests = links
            .get(id)
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect::<Vec<_>>();
        let tests = if tests.is_empty() {
            "—".to_owned()
        } else {
            tests.join("<br>")
        };
        format!("| {id} | {line} | {tests} |\n")
    });
    std::iter::once(heading).chain(rows).collect()
}

/// Links lead to files and not to lines, so that the page does not change with every edit.
fn link(file: &SourceFile, proof: &Proof, backends: &BTreeSet<String>) -> String {
    let link = format!("[{}](../{})", proof.test, file.path);
    if !file.is_suite {
        return link;
    }
    let backends: Vec<_> = backends.iter().map(String::as_str).collect();
    format!(
        "{link} on {}",
        if backends.is_empty() {
            "no backend yet".to_owned()
        } else {
            backends.join(", ")
        }
    )
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
        let backends = BTreeSet::from(["memory".to_owned(), "postgres".to_owned()]);
        let page = render(&Promises::load(), &proofs, &backends);

        let line = |id: &str| {
            page.lines()
                .find(|line| line.starts_with(&format!("| {id} |")))
                .unwrap()
        };
        assert!(line("B7").ends_with(
            "| [leases_end](../crates/x/tests/b.rs)<br>[rows_come_back](../suite/claim.rs) on memory, postgres |"
        ));
        assert!(line("P8").ends_with("| [leases_end](../crates/x/tests/b.rs) |"));
        assert!(line("A1").ends_with("| — |"));
        assert!(page.contains("**1 of 64** requirements, **1 of 35** pitfalls"));
    }
}
