//! Log lines. They go to standard error: standard output belongs to the publisher and to what commands print.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Begins to write log lines.
pub fn start(config: &LogConfig) -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(EnvFilter::try_new(&config.level)?);
    let started = match config.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(anyhow::Error::from_boxed)
}
