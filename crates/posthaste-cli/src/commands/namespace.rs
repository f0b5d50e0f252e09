//! The option `--namespace` of commands that choose messages.

use anyhow::bail;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_sql::table::{Layout, Role};

use crate::config::Database;

/// A namespace that was named has to narrow the choice down: in a table without a column for it, all messages would be meant.
pub fn ensure_known(database: &Database, named: Option<&str>) -> anyhow::Result<()> {
    ensure_in_log(database, named)?;
    match (named, database.table_map()) {
        (Some(namespace), Some(map)) if !map.has(Role::Namespace) => bail!(
            "--namespace {namespace}: the table of the map `{}` has no column for namespaces, so every message would be meant; leave \
             it out",
            map.name()
        ),
        _ => Ok(()),
    }
}

/// The same for Posthaste's own log, which has no other namespace than the default.
pub fn ensure_in_log(database: &Database, named: Option<&str>) -> anyhow::Result<()> {
    match named {
        Some(namespace) if database.layout == Layout::Log && namespace != DEFAULT_NAMESPACE => {
            bail!("--namespace {namespace}: a log has no namespaces, so every message would be meant; leave it out")
        }
        _ => Ok(()),
    }
}
