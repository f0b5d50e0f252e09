//! MySQL, which Debian's stable releases do not have: its packages from unstable, unpacked side by side and not installed.

use std::{env, fs, path::Path, process::Command};

use anyhow::{Context, ensure};
use posthaste_servers::MySqlTree;

use crate::{apt, process};

/// Finds MySQL where the developer has it, else fetches it into the user's directory for caches, once.
pub(crate) fn provide() -> anyhow::Result<MySqlTree> {
    if MySqlTree::find().is_err() && env::var_os(MySqlTree::VARIABLE).is_none() {
        fetch(&MySqlTree::default_dir()).context("cannot get MySQL from Debian's unstable release")?;
    }
    Ok(MySqlTree::find()?)
}

/// Puts the whole tree in place or nothing.
fn fetch(target: &Path) -> anyhow::Result<()> {
    if !process::succeeds(Command::new("debootstrap").arg("--version")) {
        apt::install(&["debootstrap"])?;
    }
    let parent = target.parent().context("the directory has a parent")?;
    fs::create_dir_all(parent)?;
    let work = parent.join(format!("mysql-fetched-by-{}", std::process::id()));
    let done = unpack(&work, target);
    let _ = fs::remove_dir_all(&work);
    done
}

fn unpack(work: &Path, target: &Path) -> anyhow::Result<()> {
    // The packages and all that they depend on, checked against the archive's key.
    let mut download = Command::new("debootstrap");
    download
        .args([
            "--download-only",
            "--variant=minbase",
            "--include=mysql-server-core",
            "sid",
        ])
        .arg(work);
    process::demand(&mut download)?;
    let tree = work.join("tree");
    let mut packages = 0;
    for package in fs::read_dir(work.join("var/cache/apt/archives"))? {
        let package = package?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            let unpacked = Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree).output()?;
            ensure!(
                unpacked.status.success(),
                "{} cannot be unpacked: {}",
                package.display(),
                String::from_utf8_lossy(&unpacked.stderr)
            );
            packages += 1;
        }
    }
    ensure!(
        MySqlTree::at(&tree).is_some(),
        "there is no server among the {packages} packages"
    );
    if fs::rename(&tree, target).is_err() {
        // Somebody else was quicker, or what is there cannot be used.
        ensure!(
            MySqlTree::at(target).is_some(),
            "{} is in the way: remove it",
            target.display()
        );
    }
    Ok(())
}
