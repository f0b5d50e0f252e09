//! `posthaste dead show`

use std::io::{Write, stdout};

use anyhow::bail;
use clap::Args;
use posthaste_core::MessageId;
use posthaste_core::lifecycle::State;
use posthaste_core::store::Store;

use super::view::View;

/// Show everything about one dead message, as JSON
#[derive(Debug, Args)]
pub(super) struct Show {
    id: MessageId,
}

impl Show {
    pub(super) async fn run(self, store: &dyn Store) -> anyhow::Result<()> {
        let id = self.id;
        match store.show(id).await? {
            Some(record) if record.state == State::Dead => {
                writeln!(stdout(), "{}", serde_json::to_string_pretty(&View::of(&record))?)?;
                Ok(())
            }
            Some(record) => bail!("message {id} is not dead: it is {}", record.state.word()),
            None => bail!("there is no message {id}; `posthaste dead list` shows those that are dead"),
        }
    }
}
