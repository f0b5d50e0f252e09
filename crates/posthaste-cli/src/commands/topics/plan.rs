//! `posthaste topics plan`

use clap::Args;
use posthaste_kafka::topics::{DeclaredTopics, TopicAdmin};

use super::view;
use crate::failure::EndWith;
use crate::terminal;

/// Show what is missing or different, and change nothing
///
/// `+` is to be created, `~` is to be changed, `=` is as declared, and `!` is what `topics apply` does not do by itself.
#[derive(Debug, Args)]
pub(super) struct Plan {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// End with code 3 if any topic is not as declared
    #[arg(long)]
    exit_code: bool,
}

/// Not 2, with which a command ends that was given wrong arguments.
const NOT_AS_DECLARED: u8 = 3;

impl Plan {
    pub(super) async fn run(self, admin: &TopicAdmin, declared: &DeclaredTopics) -> anyhow::Result<()> {
        let plan = admin.plan(declared).await?;
        if self.json {
            terminal::stdout().json(&plan)?;
        } else {
            write!(terminal::stdout(), "{}", view::of_plan(&plan))?;
        }
        if self.exit_code && !plan.is_as_declared() {
            return Err(EndWith(NOT_AS_DECLARED).into());
        }
        Ok(())
    }
}
