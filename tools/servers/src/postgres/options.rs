use std::{fmt::Write, path::Path};

use super::PostgresBinaries;

/// How a private PostgreSQL is set up.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Whether a commit waits for the disk, as in production. Benchmarks need it for honest figures; tests are faster
    /// without, and lose nothing when the server is stopped the hard way, only when the machine is. Defaults to `false`.
    pub durable: bool,

    /// Which PostgreSQL. Defaults to what [`PostgresBinaries::find`] finds.
    pub binaries: Option<PostgresBinaries>,

    /// Further lines for `postgresql.conf`, by name and value; they win over the crate's own. Defaults to none.
    pub settings: Vec<(String, String)>,
}

impl PostgresOptions {
    /// The lines to append to `postgresql.conf`.
    pub(super) fn configuration(&self, home: &Path, binaries: &PostgresBinaries) -> String {
        let socket_dir = home.display().to_string();
        let mut settings = vec![
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", &socket_dir),
            ("max_connections", "300"),
            ("max_prepared_transactions", "20"),
            ("wal_level", "logical"),
        ];
        if !self.durable {
            settings.extend([("fsync", "off"), ("full_page_writes", "off")]);
        }
        if binaries.has_module("pg_stat_statements") {
            settings.push(("shared_preload_libraries", "pg_stat_statements"));
        }
        settings.extend(
            self.settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );

        let mut lines = String::new();
        for (name, value) in settings {
            writeln!(lines, "{name} = '{}'", value.replace('\'', "''")).expect("a String takes all that is written");
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_values_are_doubled_and_own_settings_come_last() {
        let Ok(binaries) = PostgresBinaries::find() else { return };
        let options = PostgresOptions {
            settings: vec![("max_connections".into(), "7".into())],
            ..PostgresOptions::default()
        };
        let lines = options.configuration(Path::new("/tmp/it's"), &binaries);
        assert!(lines.contains("unix_socket_directories = '/tmp/it''s'\n"));
        assert!(lines.ends_with("max_connections = '7'\n"));
    }

    #[test]
    fn only_a_durable_server_waits_for_the_disk() {
        let Ok(binaries) = PostgresBinaries::find() else { return };
        let lines = |durable| {
            PostgresOptions {
                durable,
                ..PostgresOptions::default()
            }
            .configuration(Path::new("/d"), &binaries)
        };
        assert!(lines(false).contains("fsync = 'off'"));
        assert!(!lines(true).contains("fsync"));
    }
}
