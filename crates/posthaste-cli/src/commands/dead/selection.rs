//! Which dead messages are meant.

use clap::Args;
use posthaste_core::MessageId;
use posthaste_core::lifecycle::State;
use posthaste_core::store::Filter;

use crate::commands::namespace;
use crate::config::Config;

#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Only these messages
    #[arg(value_name = "ID")]
    ids: Vec<MessageId>,
    /// Only this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only this ordering key
    #[arg(long)]
    key: Option<String>,
    /// Only this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// In this namespace [default: relay.scope.namespace]
    #[arg(long)]
    namespace: Option<String>,
}

impl Selection {
    /// Whether nothing narrows it down.
    pub(super) fn is_everything(&self) -> bool {
        self.ids.is_empty() && self.topic.is_none() && self.key.is_none() && self.tenant.is_none()
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The ids in it are those that were asked for.
    pub(super) fn filter(self, config: &Config) -> anyhow::Result<Filter> {
        namespace::ensure_known(&config.database, self.namespace.as_deref())?;
        Ok(Filter {
            namespace: Some(self.namespace.unwrap_or_else(|| config.relay.scope.namespace.clone())),
            state: Some(State::Dead),
            topic: self.topic,
            ordering_key: self.key,
            tenant: self.tenant,
            ids: self.ids,
        })
    }
}
