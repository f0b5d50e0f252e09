//! The system's OpenSSL, by which librdkafka speaks TLS. It is compiled in with all features.

use std::process::Command;

use crate::{apt, process};

/// Installs the headers if they are missing. Where that fails cargo says what is wrong, unless it finds others.
pub(crate) fn provide() {
    if process::succeeds(Command::new("pkg-config").args(["--exists", "openssl"])) {
        return;
    }
    if let Err(error) = apt::install(&["libssl-dev", "pkg-config"]) {
        eprintln!("warning: there are no headers of OpenSSL: {error:#}");
    }
}
