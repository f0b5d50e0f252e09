//! The pooler that tests put in front of PostgreSQL.

use std::env;

use anyhow::ensure;
use posthaste_servers::PgBouncer;

use crate::apt;

/// Installs it if the machine lacks it. Tests start their own.
pub(crate) fn provide() -> anyhow::Result<()> {
    if !PgBouncer::is_installed() && env::var_os(PgBouncer::VARIABLE).is_none() {
        apt::install(&["pgbouncer"])?;
    }
    ensure!(PgBouncer::is_installed(), "apt-get installed no pgbouncer");
    Ok(())
}
