//! The address of a database, which may hold a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use posthaste_sql::table::Database;
use serde::{Deserialize, Deserializer, de};

/// Which database. Shows itself without its password.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A PostgreSQL server, as its driver reads it.
    Postgres(String),
    /// A MySQL or MariaDB server, as its driver reads it.
    MySql(String),
    /// A SQLite file.
    Sqlite(PathBuf),
}

impl DatabaseUrl {
    /// Which database it is the address of.
    pub fn database(&self) -> Database {
        match self {
            Self::Postgres(_) => Database::Postgres,
            Self::MySql(_) => Database::MySql,
            Self::Sqlite(_) => Database::Sqlite,
        }
    }

    /// The name of the product.
    pub fn product(&self) -> &'static str {
        self.database().product()
    }
}

impl Default for DatabaseUrl {
    fn default() -> Self {
        Self::Sqlite("posthaste.db".into())
    }
}

impl FromStr for DatabaseUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once(':').unwrap_or_default();
        match (scheme, rest.trim_start_matches("//")) {
            ("postgres" | "postgresql", _) => Ok(Self::Postgres(text.to_owned())),
            ("mysql", _) => Ok(Self::MySql(text.to_owned())),
            ("mariadb", _) => Ok(Self::MySql(format!("mysql:{rest}"))),
            ("sqlite", "" | ":memory:") => {
                Err("an outbox must outlive its process; name a file: sqlite://posthaste.db")
            }
            ("sqlite", path) if path.contains('?') => Err("SQLite takes no options here; give the file only"),
            // `sqlite:///var/x.db` is an absolute path: two slashes begin the address, the third one the path.
            ("sqlite", _) => Ok(Self::Sqlite(rest.strip_prefix("//").unwrap_or(rest).into())),
            _ => Err(
                "not a database that is known here; use postgres://user:password@host/database, \
                 mysql://user:password@host/database or sqlite://file.db",
            ),
        }
    }
}

impl<'de> Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(url) | Self::MySql(url) => f.write_str(&without_password(url)),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Blots out the password of every address in a text, line by line. It must also be right for an address that is
/// wrongly written, since error messages quote those: all that could be a password goes.
pub fn without_password(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(blot).collect();
    lines.join("\n")
}

fn blot(line: &str) -> String {
    let Some((scheme, rest)) = line.split_once("://") else {
        // `host=db password=…`, which libpq would take.
        return match line.split_once("password=") {
            Some((before, _)) => format!("{before}password=***"),
            None => line.to_owned(),
        };
    };
    if scheme.ends_with("http") || scheme.ends_with("https") {
        // A webhook's: its path is its password.
        let host = rest.split(['/', '?', '"', '\'', ' ']).next().unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        return format!("{scheme}://{host}/***");
    }
    let shown = match rest.rsplit_once('@') {
        Some((account, place)) => {
            let user = account.split(':').next().unwrap_or_default();
            let mark = if account.contains(':') { ":***" } else { "" };
            format!("{user}{mark}@{place}")
        }
        None => rest.to_owned(),
    };
    let shown = match shown.split_once("password=") {
        Some((before, secret)) => {
            let after = secret.find(['&', '"', ' ']).map_or("", |end| &secret[end..]);
            format!("{before}password=***{after}")
        }
        None => shown,
    };
    format!("{scheme}://{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://ann:secret@db/shop", "postgres://ann:***@db/shop"),
            ("postgres://ann:s@cr/et@db/shop", "postgres://ann:***@db/shop"),
            ("postgres://ann@db/shop", "postgres://ann@db/shop"),
            (
                "postgres://db/shop?user=ann&password=secret&x=1",
                "postgres://db/shop?user=ann&password=***&x=1",
            ),
            ("url = \"postgres://ann:secret@db", "url = \"postgres://ann:***@db"),
            ("url = 'https://h:1/a/secret?b=secret", "url = 'https://h:1/***"),
            ("https://ann:secret@h/a", "https://h/***"),
            ("host=db password='a secret' user=ann", "host=db password=***"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        let url: DatabaseUrl = "postgres://ann:secret@db/shop".parse().unwrap();
        assert_eq!(format!("{url} {url:?}").matches("secret").count(), 0);
    }

    #[test]
    fn mariadb_is_spoken_to_like_mysql() {
        for url in ["mysql://ann:secret@db/shop", "mariadb://ann:secret@db/shop"] {
            let url: DatabaseUrl = url.parse().unwrap();
            assert_eq!(url, DatabaseUrl::MySql("mysql://ann:secret@db/shop".into()));
            assert_eq!(url.to_string(), "mysql://ann:***@db/shop");
        }
    }

    #[test]
    fn a_sqlite_address_is_a_path() {
        for (url, path) in [
            ("sqlite://posthaste.db", "posthaste.db"),
            ("sqlite:posthaste.db", "posthaste.db"),
            ("sqlite:///var/lib/posthaste.db", "/var/lib/posthaste.db"),
        ] {
            assert_eq!(url.parse(), Ok(DatabaseUrl::Sqlite(path.into())));
        }
        for url in ["sqlite::memory:", "sqlite://", "oracle://db/shop", "posthaste.db", ""] {
            assert!(url.parse::<DatabaseUrl>().is_err(), "{url}");
        }
    }
}
