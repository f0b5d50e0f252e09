use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Error, Result};

/// Few threads and little memory: three brokers share a machine with the tests.
const JVM: [&str; 5] = [
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
];

/// The directory that holds Apache Kafka's jars, and the Java to run them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaJars {
    dir: PathBuf,
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
            .then_some(Self { dir })
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that runs one of Kafka's classes.
    pub(super) fn java(&self, log_config: &Path, class: &str) -> Command {
        let mut command = Command::new("java");
        let mut log_option = std::ffi::OsString::from("-Dlog4j2.configurationFile=");
        log_option.push(log_config);
        command
            .args(JVM)
            .arg(log_option)
            .arg("-cp")
            .arg(self.dir.join("*"))
            .arg(class)
            // Whatever the user's shell wants of Java is not meant for us, and would be announced on standard error.
            .env_remove("JAVA_TOOL_OPTIONS")
            .env("LC_ALL", "C");
        command
    }
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
