//! Where things are in this repository.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The directory of the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory of the workspace")
        .to_owned()
}

/// A directory for whatever xtask keeps between two runs.
pub(crate) fn scratch(name: &str) -> PathBuf {
    root().join("target/xtask").join(name)
}

/// Cargo, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // `cargo run` tells us about our own package. Some build scripts listen to these variables and would run again
    // each time that cargo is called with xtask and without it in turn.
    for (name, _) in env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            cargo.env_remove(name);
        }
    }
    cargo
}
