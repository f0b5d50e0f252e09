use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

/// How a private MariaDB or MySQL is set up.
#[derive(Debug, Clone, Default)]
pub struct MariaDbOptions {
    /// Whether a commit waits for the disk, as in production. Benchmarks need it for honest figures; tests are faster
    /// without, and lose nothing when the server is stopped the hard way, only when the machine is. Defaults to `false`.
    pub durable: bool,

    /// Further lines for the server's configuration, by name and value; they win over the crate's own. Defaults to none.
    pub settings: Vec<(String, String)>,
}

impl MariaDbOptions {
    /// The server's whole configuration, with what this kind of server needs.
    pub(super) fn configuration(&self, home: &Path, section: &str, needed: &[(&'static str, String)]) -> String {
        let data = home.join("data").display().to_string();
        let socket = home.join("socket").display().to_string();
        // A server that starts clears its directory of temporary tables, also of those of its neighbours.
        let temporary = temporary(home).display().to_string();
        let mut settings = vec![
            ("datadir", data.as_str()),
            ("socket", &socket),
            ("tmpdir", &temporary),
            ("bind-address", "127.0.0.1"),
            ("max-connections", "300"),
            ("character-set-server", "utf8mb4"),
            ("skip-name-resolve", "1"),
        ];
        settings.extend(needed.iter().map(|(name, value)| (*name, value.as_str())));
        if !self.durable {
            // What is committed has reached the operating system, which outlives the server.
            settings.extend([
                ("innodb-flush-log-at-trx-commit", "2"),
                ("innodb-flush-method", "nosync"),
                ("innodb-doublewrite", "0"),
            ]);
        }
        let further = self.settings.iter();
        settings.extend(further.map(|(name, value)| (name.as_str(), value.as_str())));

        let mut lines = format!("[{section}]\n");
        for (name, value) in settings {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(lines, "{name} = \"{value}\"").expect("a String takes all that is written");
        }
        lines
    }
}

/// Where the server keeps its temporary tables.
pub(super) fn temporary(home: &Path) -> PathBuf {
    home.join("tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_values_are_escaped_and_own_settings_come_last() {
        let options = MariaDbOptions {
            settings: vec![("max-connections".into(), "7".into())],
            ..MariaDbOptions::default()
        };
        let lines = options.configuration(Path::new(r#"/tmp/a"b"#), "mysqld", &[("mysqlx", "OFF".into())]);
        assert!(
            lines.starts_with("[mysqld]\n") && lines.contains("mysqlx = \"OFF\""),
            "{lines}"
        );
        assert!(lines.contains(r#"socket = "/tmp/a\"b/socket""#), "{lines}");
        assert!(lines.ends_with("max-connections = \"7\"\n"));
    }

    #[test]
    fn only_a_durable_server_waits_for_the_disk() {
        let lines = |durable| {
            let settings = Vec::new();
            MariaDbOptions { durable, settings }.configuration(Path::new("/d"), "mariadbd", &[])
        };
        assert!(lines(false).contains("nosync"));
        assert!(!lines(true).contains("flush"));
    }
}
