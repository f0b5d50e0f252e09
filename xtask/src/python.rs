//! Python with drivers for databases, for the tests in which another language writes to the outbox.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use crate::{apt, process, workspace};

/// A driver: the module that a program imports, and the package that has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Driver {
    pub(crate) module: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const PSYCOPG: Driver = Driver {
    module: "psycopg",
    package: "psycopg[binary]",
};
pub(crate) const PYMYSQL: Driver = Driver {
    module: "pymysql",
    package: "PyMySQL",
};

/// The directory to put on `PYTHONPATH`. Installs what is missing into it, and nothing into the system's Python.
pub(crate) fn provide(drivers: &[Driver]) -> anyhow::Result<PathBuf> {
    provide_in("python", drivers)
}

/// The same, in a directory of this name.
pub(crate) fn provide_in(name: &str, drivers: &[Driver]) -> anyhow::Result<PathBuf> {
    let target = workspace::scratch(name);
    for Driver { module, package } in drivers.iter().filter(|driver| !imports(driver.module, &target)) {
        if !process::succeeds(python().args(["-m", "pip", "--version"])) {
            apt::install(&["python3", "python3-pip"])?;
        }
        let mut pip = python();
        pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
            .arg(&target)
            .arg(package);
        process::demand(&mut pip)?;
        ensure!(
            imports(module, &target),
            "python3 cannot import {module} from {}",
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
