//! Log lines. They go to standard error: standard output belongs to the publisher and to what commands print.

use std::fmt;
use std::io::{self, IsTerminal};

use anstyle::Style;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::config::{LogConfig, LogFormat};
use crate::terminal;

/// Begins to write log lines.
pub fn start(config: &LogConfig) -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        // It would say that a line could not be written where it could not be written, and panic.
        .log_internal_errors(false)
        .with_ansi(terminal::has_colors(&io::stderr()))
        .with_env_filter(EnvFilter::try_new(&config.level)?);
    let json = match config.format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json {
        lines.json().try_init()
    } else {
        lines.fmt_fields(debug_fn(write_field).delimited(" ")).try_init()
    };
    started.map_err(anyhow::Error::from_boxed)
}

/// Values come from messages and brokers: they may neither control the terminal nor begin a line that looks like one of ours.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    let text = terminal::harmless(&text).replace('\n', "\n    ");
    match field.name() {
        "message" => write!(writer, "{text}"),
        name if writer.has_ansi_escapes() => {
            let (italic, dimmed) = (Style::new().italic(), Style::new().dimmed());
            write!(writer, "{italic}{name}{italic:#}{dimmed}={dimmed:#}{text}")
        }
        name => write!(writer, "{name}={text}"),
    }
}
