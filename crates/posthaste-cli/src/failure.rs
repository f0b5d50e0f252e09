//! How a command that failed says so: one message on standard error and a non-zero exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use thiserror::Error;

use crate::terminal;

/// An end with a code that means something, after everything was said.
#[derive(Debug, Error)]
#[error("exit code {0}")]
pub struct EndWith(pub u8);

/// Says what went wrong and returns the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(EndWith(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    if is_broken_pipe(error) {
        // Whoever read our output, `head` perhaps, has seen enough.
        return ExitCode::SUCCESS;
    }
    let style = if terminal::has_colors(&io::stderr()) {
        Style::new().bold().fg_color(Some(AnsiColor::Red.into()))
    } else {
        Style::new()
    };
    // There may be nobody to read it, or no room for it: `eprintln!` would panic.
    let _ = writeln!(
        io::stderr(),
        "{style}error:{style:#} {}",
        terminal::harmless(&text(error))
    );
    ExitCode::FAILURE
}

/// Whether the reader of what was to be printed is gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The error and its causes, without those that an outer one has quoted already, and without a driver's own words: the
/// store has said what they mean.
fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().take_while(|cause| !cause.is::<sqlx::Error>()) {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_quoted_is_not_repeated() {
        let error = anyhow::anyhow!("no route")
            .context("PostgreSQL: no route; check the host")
            .context("cannot start");
        assert_eq!(text(&error), "cannot start: PostgreSQL: no route; check the host");
    }
}
