//! `posthaste dead show`

use anyhow::bail;
use clap::Args;
use posthaste_core::MessageId;
use posthaste_core::lifecycle::State;
use posthaste_core::store::Store;

use super::view::View;
use crate::terminal;

/// Show everything about one dead message, as JSON
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The message, as `dead list` shows it
    id: MessageId,
}

impl Show {
    pub(super) async fn run(self, store: &dyn Store) -> anyhow::Result<()> {
        let id = self.id;
        match store.show(id).await? {
            Some(record) if record.state == State::Dead => terminal::stdout().json_pretty(&View::of(&record)),
            Some(record) => bail!("message {id} is not dead: it is {}", record.state.as_str()),
            None => bail!("there is no message {id}; `posthaste dead list` shows those that are dead"),
        }
    }
}
