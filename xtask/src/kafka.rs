//! Apache Kafka's jars, and the Java to run them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use posthaste_servers::KafkaJars;

use crate::{apt, process, workspace};

/// Finds the jars where the developer has them, else fetches them with Maven into target/xtask/kafka, once.
pub(crate) fn jars() -> anyhow::Result<KafkaJars> {
    if !process::succeeds(Command::new("java").arg("-version")) {
        apt::install(&["default-jre-headless"])?;
    }
    if env::var_os(KafkaJars::VARIABLE).is_some() {
        return Ok(KafkaJars::find()?);
    }
    let pom = workspace::root().join("xtask/kafka/pom.xml");
    if !is_fetched(&pom) {
        fetch(&pom).context("cannot fetch Apache Kafka with Maven")?;
    }
    let jars = KafkaJars::find()?;
    if let Err(error) = jars.archive_classes(&workspace::scratch("kafka")) {
        eprintln!("warning: brokers will take longer to start: {error}");
    }
    Ok(jars)
}

/// A copy of the list is put beside the jars when all of them are there.
fn is_fetched(pom: &Path) -> bool {
    KafkaJars::find().is_ok()
        && matches!((fs::read(pom), fs::read(fetched_list())), (Ok(wanted), Ok(got)) if wanted == got)
}

fn fetch(pom: &Path) -> anyhow::Result<()> {
    if !process::succeeds(Command::new("mvn").arg("--version")) {
        apt::install(&["maven"])?;
    }
    let libs = KafkaJars::default_dir();
    if libs.exists() {
        fs::remove_dir_all(&libs)?;
    }
    fs::create_dir_all(&libs)?;
    let mut maven = Command::new("mvn");
    maven
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", libs.display()));
    process::demand(&mut maven)?;
    fs::copy(pom, fetched_list())?;
    Ok(())
}

fn fetched_list() -> PathBuf {
    workspace::scratch("kafka").join("fetched.xml")
}
