//! An authority for one cluster, and the certificate of its brokers, made by the `keytool` that comes with Java.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Error, Result};

/// It protects nothing: the files are as private as the directory in which they lie.
const PASSWORD: &str = "posthaste";

/// The authority's certificate, for clients to trust.
pub(super) fn ca_file(home: &Path) -> PathBuf {
    home.join("ca.pem")
}

fn key_store(home: &Path) -> PathBuf {
    home.join("brokers.p12")
}

pub(super) fn properties(home: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("ssl.keystore.type", "PKCS12".into()),
        ("ssl.keystore.location", key_store(home).display().to_string()),
        ("ssl.keystore.password", PASSWORD.into()),
        ("ssl.key.password", PASSWORD.into()),
    ]
}

/// Writes the certificate of the authority and the key store of the brokers into `home`.
pub(super) fn create(home: &Path) -> Result<()> {
    let ca = ca_file(home);
    let authority = ["-alias", "ca", "-dname", "CN=Posthaste test authority", "-ext", "bc:c"];
    keytool(home, "-genkeypair", &authority)?;
    let broker = ["-alias", "broker", "-dname", "CN=127.0.0.1", "-signer", "ca"];
    let names = ["-ext", "san=ip:127.0.0.1,dns:localhost"];
    keytool(home, "-genkeypair", &[&broker[..], &names].concat())?;
    keytool(
        home,
        "-exportcert",
        &["-rfc", "-alias", "ca", "-file", &ca.display().to_string()],
    )
}

fn keytool(home: &Path, action: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("keytool");
    command
        .args(["-J-XX:TieredStopAtLevel=1", action])
        .args(arguments)
        .args(["-storetype", "PKCS12", "-storepass", PASSWORD, "-keystore"])
        .arg(key_store(home))
        .env_remove("JAVA_TOOL_OPTIONS");
    if action == "-genkeypair" {
        command.args(["-keyalg", "EC", "-groupname", "secp256r1", "-validity", "365"]);
    }
    let done = command.output().map_err(Error::io("run keytool"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        command: format!("keytool {action}"),
        output: String::from_utf8_lossy(&[done.stdout, done.stderr].concat())
            .trim()
            .to_owned(),
    })
}
