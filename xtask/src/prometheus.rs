//! The Prometheus that evaluates the shipped alerting rules in tests.

use std::env;

use anyhow::ensure;
use posthaste_servers::PrometheusServer;

use crate::apt;

/// Installs it if the machine lacks it. Tests start their own.
pub(crate) fn provide() -> anyhow::Result<()> {
    if !PrometheusServer::is_installed() && env::var_os(PrometheusServer::VARIABLE).is_none() {
        apt::install(&["prometheus"])?;
    }
    ensure!(PrometheusServer::is_installed(), "apt-get installed no prometheus");
    Ok(())
}
