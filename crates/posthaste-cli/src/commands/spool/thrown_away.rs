//! Letters of messages that an operator removes for good.

use std::collections::HashSet;

use anyhow::Context as _;
use posthaste_core::MessageId;
use posthaste_relay::Spool;

use crate::config::Config;

/// Marks the letters of removed messages in the file, if they are there: else the next import would bring them back.
pub fn mark_thrown_away(config: &Config, namespace: Option<&str>, removed: &[MessageId]) -> anyhow::Result<()> {
    let Some(spool) = config.safety_net.spool().filter(|_| !removed.is_empty()) else {
        return Ok(());
    };
    let removed: HashSet<String> = removed.iter().map(ToString::to_string).collect();
    let marked = Spool::new(spool)
        .settle(|mark| namespace.is_none_or(|namespace| mark.namespace == namespace) && removed.contains(&mark.id));
    marked.context(
        "the messages are removed, but letters of them may be in safety_net.file, which could not be marked; `posthaste spool \
         list` shows them, and an import would bring them back",
    )?;
    Ok(())
}
