//! `posthaste grafana`

use std::io::{Write, stdout};

use clap::{Args, Subcommand};

/// A dashboard for Grafana
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Grafana {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste grafana print > posthaste.json     to be imported: Dashboards, New, Import
  posthaste grafana print > /var/lib/grafana/dashboards/posthaste.json";

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the dashboard as JSON
    ///
    /// Its data source, job and namespace are variables of the dashboard.
    Print,
}

/// What is shipped.
const DASHBOARD: &str = include_str!("../../assets/grafana.json");

impl Grafana {
    pub fn run(&self) -> anyhow::Result<()> {
        let Action::Print = self.action;
        stdout().write_all(DASHBOARD.as_bytes())?;
        Ok(())
    }
}
