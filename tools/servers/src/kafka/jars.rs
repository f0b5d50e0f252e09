use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{KafkaCluster, KafkaOptions};
use crate::{Error, Result};

/// Few threads and little memory: three brokers share a machine with the tests.
const JVM: [&str; 7] = [
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    // It has much to say about classes that do not fit into an archive.
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
];

/// The directory that holds Apache Kafka's jars, and the Java to run them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaJars {
    dir: PathBuf,
    archive: Archive,
}

/// What a Java does about the archive of loaded classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Archive {
    ReadIfThere,
    WriteAtExit,
}

impl KafkaJars {
    /// The environment variable that names the directory.
    pub const VARIABLE: &str = "POSTHASTE_KAFKA_LIBS";

    /// Finds the jars: in the directory `POSTHASTE_KAFKA_LIBS` names, else where `cargo xtask test` puts them.
    pub fn find() -> Result<Self> {
        let dir = env::var_os(Self::VARIABLE).map_or_else(Self::default_dir, PathBuf::from);
        Self::in_directory(&dir).ok_or_else(|| Error::NotInstalled {
            server: "Apache Kafka",
            looked_in: dir.display().to_string(),
            variable: Self::VARIABLE,
        })
    }

    /// Where `cargo xtask test` and `cargo xtask services up` put the jars.
    pub fn default_dir() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/xtask/kafka/libs")
    }

    fn in_directory(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().ok()?;
        let names: Vec<_> = fs::read_dir(&dir)
            .ok()?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        ["kafka_2.13-", "kafka-clients-", "kafka-server-", "log4j-slf4j-impl-"]
            .iter()
            .all(|jar| names.iter().any(|name| name.to_string_lossy().starts_with(jar)))
            .then_some(Self {
                dir,
                archive: Archive::ReadIfThere,
            })
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes an archive of Kafka's classes beside the jars, unless there is one. A broker that can read it starts in
    /// half the time. Java passes over an archive that does not fit its own version or the jars.
    ///
    /// It takes one start of a broker, in a directory below `parent`.
    pub fn archive_classes(&self, parent: &Path) -> Result<()> {
        if self.archive_file().exists() {
            return Ok(());
        }
        let writer = Self {
            dir: self.dir.clone(),
            archive: Archive::WriteAtExit,
        };
        let options = KafkaOptions {
            brokers: 1,
            ..KafkaOptions::default()
        };
        let broker = KafkaCluster::start_from(writer, parent, &options)?;
        broker.stop(0)?;
        fs::rename(self.unfinished_archive_file(), self.archive_file())
            .map_err(Error::io(format!("write {}", self.archive_file().display())))
    }

    fn archive_file(&self) -> PathBuf {
        self.dir.join("classes.jsa")
    }

    fn unfinished_archive_file(&self) -> PathBuf {
        self.dir.join("classes.jsa.unfinished")
    }

    /// A command that runs one of Kafka's tools.
    pub(super) fn tool(&self, log_config: &Path, class: &str) -> Command {
        let archive = self.archive_file();
        let archive = archive.exists().then(|| option("-XX:SharedArchiveFile=", &archive));
        self.java(archive, log_config, class)
    }

    /// A command that runs a broker.
    pub(super) fn broker(&self, log_config: &Path) -> Command {
        const CLASS: &str = "kafka.Kafka";
        match self.archive {
            Archive::ReadIfThere => self.tool(log_config, CLASS),
            Archive::WriteAtExit => {
                let archive = option("-XX:ArchiveClassesAtExit=", &self.unfinished_archive_file());
                self.java(Some(archive), log_config, CLASS)
            }
        }
    }

    fn java(&self, archive: Option<OsString>, log_config: &Path, class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .args(JVM)
            .args(archive)
            .arg(option("-Dlog4j2.configurationFile=", log_config))
            .arg(class)
            .env("CLASSPATH", self.dir.join("*"))
            .env("LC_ALL", "C")
            // What the user's shell wants of Java is not meant for us, and would be announced on standard error.
            .env_remove("JAVA_TOOL_OPTIONS");
        command
    }
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_lacks_a_jar_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for jar in [
            "kafka_2.13-4.1.0.jar",
            "kafka-clients-4.1.0.jar",
            "kafka-server-4.1.0.jar",
        ] {
            fs::write(dir.path().join(jar), "").unwrap();
        }
        assert_eq!(KafkaJars::in_directory(dir.path()), None);
        fs::write(dir.path().join("log4j-slf4j-impl-2.24.3.jar"), "").unwrap();
        assert!(KafkaJars::in_directory(dir.path()).is_some());
    }
}
