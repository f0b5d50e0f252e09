//! Python with psycopg, for the tests in which another language writes to the outbox.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use crate::{apt, process, workspace};

/// The directory to put on `PYTHONPATH`. Installs what is missing into it, and nothing into the system's Python.
pub(crate) fn psycopg() -> anyhow::Result<PathBuf> {
    let target = workspace::scratch("python");
    if !imports("psycopg", &target) {
        if !process::succeeds(python().args(["-m", "pip", "--version"])) {
            apt::install(&["python3", "python3-pip"])?;
        }
        let mut pip = python();
        pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
            .arg(&target)
            .arg("psycopg[binary]");
        process::demand(&mut pip)?;
        ensure!(
            imports("psycopg", &target),
            "python3 cannot import psycopg from {}",
            target.display()
        );
    }
    Ok(target)
}

fn imports(module: &str, path: &Path) -> bool {
    process::succeeds(
        python()
            .args(["-c", &format!("import {module}")])
            .env("PYTHONPATH", path),
    )
}

fn python() -> Command {
    Command::new("python3")
}
