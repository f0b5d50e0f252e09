//! `cargo xtask conformance`: which test proves which promise.

mod files;
mod heading;
mod id;
mod page;
mod promises;
mod scan;
mod sentence;

use std::{fs, process::ExitCode};

use anyhow::{Context, bail};

use crate::workspace;
use page::Pages;
use promises::Promises;

/// The command that brings the pages up to date.
pub(crate) const FIX: &str = "cargo xtask conformance";

const OVERVIEW: &str = "docs/conformance.md";
const DETAILS: &str = "docs/conformance-details.md";

/// Write docs/conformance.md and its details from the tests that say what they prove
///
/// A test says so in its documentation: `/// Proves B7.` or `/// Proves A2, B2 and pitfall 14.`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing, and fail if a page is out of date
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.check {
        return Ok(if is_up_to_date() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let pages = current()?;
    for (path, page) in [(OVERVIEW, pages.overview), (DETAILS, pages.details)] {
        let file = workspace::root().join(path);
        fs::create_dir_all(file.parent().expect("the page is in a directory"))?;
        fs::write(&file, page).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the pages say what the tests say. Prints what is wrong if not.
pub(crate) fn is_up_to_date() -> bool {
    let pages = match current() {
        Ok(pages) => pages,
        Err(error) => {
            eprintln!("{error:#}");
            return false;
        }
    };
    let is = |path, page: &str| fs::read_to_string(workspace::root().join(path)).is_ok_and(|old| old == page);
    let up_to_date = is(OVERVIEW, &pages.overview) && is(DETAILS, &pages.details);
    if !up_to_date {
        eprintln!("{OVERVIEW} or {DETAILS} is out of date; to fix: {FIX}");
    }
    up_to_date
}

/// The pages as they should be.
fn current() -> anyhow::Result<Pages> {
    let promises = Promises::load();
    let root = workspace::root();
    let tables = files::tables(&root)?;
    let mut proofs = Vec::new();
    let mut problems = Vec::new();
    for file in files::sources(&root)? {
        let source = fs::read_to_string(root.join(&file.path)).with_context(|| format!("cannot read {}", file.path))?;
        match scan::proofs(&source, file.is_suite) {
            Ok(found) => proofs.extend(found.into_iter().map(|proof| (file.clone(), proof))),
            Err(wrong) => problems.extend(wrong.into_iter().map(|problem| format!("{}:{problem}", file.path))),
        }
    }
    for (file, proof) in &proofs {
        let unknown = proof.ids.iter().filter(|id| !promises.contains(**id));
        problems.extend(unknown.map(|id| format!("{}:{}: there is no {}", file.path, proof.line, id.spelled_out())));
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(page::render(&promises, &proofs, &tables))
}
