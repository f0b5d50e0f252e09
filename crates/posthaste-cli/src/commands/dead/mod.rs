//! `posthaste dead`

mod change;
mod list;
mod named;
mod selection;
mod show;
mod view;

use clap::{Args, Subcommand};

use crate::config::Config;
use crate::schema;
use crate::unserved::Unserved;

/// Messages that are read at once, with their payloads.
const PAGE: u32 = 100;

/// Look at dead messages, and replay or discard them
///
/// A message is dead when its attempts are used up or its failure will not pass. It stays until an operator decides.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Dead {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste dead list --topic orders
  posthaste dead show 0192f0c1-7e3a-7c55-9d0e-3f6a1b2c4d5e
  posthaste dead replay --topic orders --key 42
  posthaste dead discard --all --yes";

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    Replay(change::Replay),
    Discard(change::Discard),
}

impl Dead {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        if let Action::Discard(discard) = &self.action {
            discard.confirm()?;
        }
        let store = schema::existing(&config.database).await?;
        let namespace = self.action.namespace().unwrap_or(&config.relay.scope.namespace);
        let unserved = Unserved::look(&*store, &config.database, namespace).await?;
        let unserved = unserved.as_ref();
        if let Some(unserved) = unserved.filter(|_| !self.action.changes()) {
            unserved.note();
        }
        match self.action {
            Action::List(list) => list.run(&*store, config).await,
            Action::Show(show) => show.run(&*store).await,
            Action::Replay(replay) => replay.run(&*store, config, unserved).await,
            Action::Discard(discard) => discard.run(&*store, config, unserved).await,
        }
    }
}

impl Action {
    fn changes(&self) -> bool {
        matches!(self, Self::Replay(_) | Self::Discard(_))
    }

    /// The one that was named.
    fn namespace(&self) -> Option<&str> {
        match self {
            Self::List(list) => list.namespace(),
            Self::Show(_) => None,
            Self::Replay(replay) => replay.namespace(),
            Self::Discard(discard) => discard.namespace(),
        }
    }
}
