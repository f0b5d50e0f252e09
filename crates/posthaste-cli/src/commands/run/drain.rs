//! `posthaste run --drain`

use std::fmt;

use anyhow::bail;
use posthaste_relay::{Relay, RelayError, RelayReport};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::terminal;

/// How the summary is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Text,
    /// Not at all: standard output is for messages alone, and the log has the figures.
    None,
}

/// What became of the messages that were due.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Summary<'a> {
    delivered: u64,
    /// Still in the outbox: the attempt failed, was not made, or its outcome could not be written.
    failed: u64,
    dead: u64,
    /// Due, but held back or held by another relay.
    remaining: u64,
    /// The first that was not delivered, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn of(report: &'a RelayReport) -> Self {
        Self {
            delivered: report.delivered,
            failed: report.undelivered.saturating_sub(report.died),
            dead: report.died,
            remaining: report.remaining,
            first_failure: report.first_failure.as_deref(),
        }
    }

    /// What went wrong first. The others are in the log, of which not everybody sees all.
    fn reason(&self) -> String {
        match self.first_failure {
            None => String::new(),
            Some(first) if self.failed + self.dead == 1 => format!("; {first}"),
            Some(first) => format!("; the first of them, {first} (-v logs them all)"),
        }
    }

    /// What to do about those that were not delivered.
    fn remedy(&self) -> &'static str {
        match (self.failed, self.dead) {
            (0, 0) => {
                "a message before them in their key waits for its retry or is dead, another relay has them, or another \
                 transaction has locked their rows: see `posthaste status`, and drain again later"
            }
            (0, _) => "see `posthaste dead list`",
            (_, 0) => "drain again later",
            _ => "see `posthaste dead list`, and drain again later",
        }
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            delivered,
            failed,
            dead,
            remaining,
            ..
        } = self;
        write!(f, "delivered {delivered}, failed {failed}, dead {dead}")?;
        match remaining {
            0 => Ok(()),
            _ => write!(f, ", still due {remaining}"),
        }
    }
}

/// What is on its way when a signal comes is delivered again after its lease.
pub(super) async fn run(relay: Relay, stop: &CancellationToken, form: Form) -> anyhow::Result<()> {
    let Some(ended) = stop.run_until_cancelled(relay.drain()).await else {
        bail!("interrupted; what was not delivered stays in the outbox");
    };
    let (report, hindered) = match ended {
        Ok(report) => (report, None),
        Err(error) => match &error {
            RelayError::BrokerUnavailable { report, .. } | RelayError::Unsettled { report } => {
                (report.as_ref().clone(), Some(error))
            }
            _ => return Err(error.into()),
        },
    };
    let summary = Summary::of(&report);
    // A reader that is gone must not hide what was not delivered.
    let printed = match form {
        Form::Json => terminal::stdout().json(&summary),
        Form::Text => writeln!(terminal::stdout(), "{summary}").map_err(Into::into),
        Form::None => Ok(()),
    };
    match hindered {
        Some(error) => Err(error.into()),
        None if report.is_complete() => printed,
        None => bail!(
            "not all that was due was delivered: {summary}{}; {}",
            summary.reason(),
            summary.remedy()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_not_counted_twice() {
        let mut report = RelayReport::default();
        (report.delivered, report.died, report.undelivered) = (4, 2, 5);
        let summary = Summary::of(&report);
        assert_eq!(summary.to_string(), "delivered 4, failed 3, dead 2");
        report.remaining = 7;
        let summary = Summary::of(&report);
        assert_eq!(summary.to_string(), "delivered 4, failed 3, dead 2, still due 7");
    }
}
