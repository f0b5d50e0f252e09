//! Installing Debian packages.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::ensure;
use nix::unistd::Uid;

use crate::process;

/// Installs packages as root, or with `sudo` where that asks for no password.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    static UPDATED: AtomicBool = AtomicBool::new(false);
    ensure!(
        process::succeeds(Command::new("apt-get").arg("--version")),
        "there is no apt-get to install {packages:?}"
    );
    if !UPDATED.swap(true, Ordering::Relaxed) {
        process::demand(apt_get()?.args(["-q", "update"]))?;
    }
    process::demand(
        apt_get()?
            .args(["-q", "install", "-y", "--no-install-recommends"])
            .args(packages),
    )
}

fn apt_get() -> anyhow::Result<Command> {
    let mut command = if Uid::effective().is_root() {
        Command::new("env")
    } else {
        ensure!(
            process::succeeds(Command::new("sudo").args(["-n", "true"])),
            "installing packages needs root or sudo"
        );
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "env"]);
        sudo
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    Ok(command)
}
