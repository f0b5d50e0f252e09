//! What must be on disk before a broker starts for the first time.

use std::{fs, io, path::Path};

use super::{broker::Broker, jars::KafkaJars};
use crate::{Error, Result};

/// Sixteen bytes in the alphabet that Kafka uses for its ids; so are the ids of the brokers' directories.
const CLUSTER_ID: &str = "posthaste-cluster-id-A";

/// Kafka logs what is wrong, and nothing as long as all is well. The process's output is the broker's log.
const LOG_CONFIG: &str = "\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c{1})%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
";

pub(super) fn write_log_config(file: &Path) -> Result<()> {
    fs::write(file, LOG_CONFIG).map_err(Error::io(format!("write {}", file.display())))
}

/// Formats the brokers' directories, whatever they held before.
///
/// Kafka's own tool takes a Java of its own for every broker, and that is most of the time a cluster takes to start.
/// So it formats the first directory, and the others are copies in which only the ids differ.
pub(super) fn format(brokers: &[Broker], jars: &KafkaJars, log_config: &Path) -> Result<()> {
    let (first, others) = brokers.split_first().expect("a cluster has a broker");
    clear(first)?;
    let mut tool = jars.tool(log_config, "kafka.tools.StorageTool");
    tool.args(["format", "-t", CLUSTER_ID, "-c"])
        .arg(first.properties_file());
    let done = tool.output().map_err(Error::io("run java, which Kafka needs"))?;
    if !done.status.success() {
        return Err(Error::Failed {
            command: "kafka.tools.StorageTool format".into(),
            output: String::from_utf8_lossy(&[done.stdout, done.stderr].concat())
                .trim()
                .to_owned(),
        });
    }
    for broker in others {
        clear(broker)?;
        copy(first, broker).map_err(Error::io(format!("copy to {}", broker.data().display())))?;
    }
    Ok(())
}

fn clear(broker: &Broker) -> Result<()> {
    match fs::remove_dir_all(broker.data()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("clear {}", broker.data().display()))(error))
        }
        _ => Ok(()),
    }
}

fn copy(from: &Broker, to: &Broker) -> io::Result<()> {
    fs::create_dir_all(to.data())?;
    for file in fs::read_dir(from.data())? {
        let file = file?;
        fs::copy(file.path(), to.data().join(file.file_name()))?;
    }
    let identity = to.data().join("meta.properties");
    let lines = fs::read_to_string(&identity)?;
    fs::write(identity, with_ids(&lines, to.id()))
}

fn with_ids(meta_properties: &str, id: i32) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some(("node.id", _)) => format!("node.id={id}\n"),
        Some(("directory.id", _)) => format!("directory.id=posthaste-broker-{id:03}-A\n"),
        _ => format!("{line}\n"),
    };
    meta_properties.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_ids_of_its_own() {
        let first = "#comment\ncluster.id=c\ndirectory.id=d\nnode.id=1\nversion=1\n";
        let copy = "#comment\ncluster.id=c\ndirectory.id=posthaste-broker-002-A\nnode.id=2\nversion=1\n";
        assert_eq!(with_ids(first, 2), copy);
    }
}
