//! `posthaste enqueue`

mod layout;
mod line;
mod lines;
mod payload;
mod refusal;
mod topic;

use std::io::{Write, stdin};

use anyhow::{Context, anyhow};
use chrono::{DateTime, Utc};
use clap::Args;
use humantime_serde::re::humantime::parse_duration;
use posthaste_core::{EnqueueError, Enqueued, Message};
use serde_json::json;

use crate::config::Config;
use crate::schema;
use crate::terminal::{self, Printer};
use layout::UnservedQueue;
use lines::{Lines, Target};
use payload::Payload;

/// Enqueue messages, given by flags or as lines of JSON
///
/// Prints the id of each message and whether it is new, or a duplicate of one with the same dedupe key.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Enqueue {
    /// Read messages from standard input, one JSON object per line
    #[arg(long, conflicts_with_all = ["topic", "payload", "key", "event_type", "tenant", "dedupe_key", "header",
        "aggregate", "not_before", "content_type", "source", "namespace"])]
    stdin: bool,
    /// With --stdin: so many lines are one transaction
    #[arg(long, value_name = "LINES", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    chunk: u32,
    /// Print one JSON object per message
    #[arg(long)]
    json: bool,

    /// Where the message goes; may be left out where a table map derives it
    #[arg(long)]
    topic: Option<String>,
    /// The body: text, @FILE for a file's bytes, or - for those of standard input
    #[arg(long, required_unless_present = "stdin", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Messages of one topic with the same key are delivered in order
    #[arg(long, allow_negative_numbers = true)]
    key: Option<String>,
    /// The event's type, such as acme.orders.created.v1
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The tenant
    #[arg(long, allow_negative_numbers = true)]
    tenant: Option<String>,
    /// Enqueue only if no message of this topic had this key
    #[arg(long, allow_negative_numbers = true)]
    dedupe_key: Option<String>,
    /// A header; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// What the event is about, such as Order/42
    #[arg(long, value_name = "TYPE/ID", value_parser = aggregate)]
    aggregate: Option<(String, String)>,
    /// The service that speaks [default: outbox.source]
    #[arg(long)]
    source: Option<String>,
    /// Whose outbox [default: outbox.namespace]
    #[arg(long)]
    namespace: Option<String>,
    /// Not to be delivered before: a time such as 2030-01-31T12:00:00Z, or a wait such as 10m
    #[arg(long, value_name = "TIME", value_parser = time)]
    not_before: Option<DateTime<Utc>>,
    /// Media type of the payload [default: application/json, else text/plain, else application/octet-stream,
    /// whichever fits]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  posthaste enqueue --topic orders --key 42 --payload '{\"orderId\": 42}'
  posthaste enqueue --topic invoices --payload @invoice.pdf --content-type application/pdf
  posthaste enqueue --stdin < messages.jsonl

A line of JSON, such as {\"topic\": \"orders\", \"key\": \"42\", \"payload\": {\"orderId\": 42}}, has the fields topic (may be \
left out where a table map derives it), payload (any JSON value; a string is taken as text) or payload_base64, and, all \
optional: id, namespace, ordering_key (or key), tenant, \
dedupe_key, event_type (or type), source, aggregate_type, aggregate_id, content_type, headers, not_before. Lines of \
`posthaste dead list --json` can be read, too. The lines of a chunk are written together or, if one is bad, not at all.";

impl Enqueue {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let json = self.json;
        let options = config.outbox.options();
        let map = config.database.table_map();
        if self.stdin {
            let store = schema::open(&config.database).await?;
            let unserved = UnservedQueue::look(&*store, &config.database).await?;
            let lines = Lines::new(stdin().lock(), self.chunk, map);
            let target = Target {
                store: &*store,
                options: &options,
                unserved,
            };
            return lines::enqueue(&target, lines, json).await;
        }
        let mut message = self.message()?;
        if message.topic.is_empty() {
            message.topic = topic::derived_of_flags(&message, map)
                .map_err(anyhow::Error::msg)?
                .into();
        }
        let store = schema::open(&config.database).await?;
        if let Some(unserved) = UnservedQueue::look(&*store, &config.database).await? {
            unserved.refuse(&options, &message)?;
        }
        let outcomes = store
            .enqueue_and_commit(&options, vec![message])
            .await
            .map_err(|error| match error {
                EnqueueError::Invalid { reason, .. } => anyhow!("{}", refusal::of_flags(&reason)),
                error => error.into(),
            })?;
        print(&mut terminal::stdout(), &outcomes, json).context("the message was written, but its id cannot be printed")
    }

    fn message(self) -> anyhow::Result<Message> {
        let payload = Payload::from_argument(&self.payload.unwrap_or_default())?;
        let mut message = payload.into_message(self.topic.unwrap_or_default(), self.content_type);
        message.ordering_key = self.key.map(Into::into);
        message.event_type = self.event_type.map(Into::into);
        message.tenant = self.tenant.map(Into::into);
        message.dedupe_key = self.dedupe_key.map(Into::into);
        message.headers = self.header.into_iter().collect();
        let (kind, id) = self.aggregate.unzip();
        (message.aggregate_type, message.aggregate_id) = (kind.map(Into::into), id.map(Into::into));
        message.source = self.source.map(Into::into);
        message.namespace = self.namespace.map(Into::into);
        message.not_before = self.not_before;
        Ok(message)
    }
}

fn print(out: &mut Printer<impl Write>, outcomes: &[Enqueued], json: bool) -> anyhow::Result<()> {
    for outcome in outcomes {
        let id = outcome.id();
        if json {
            out.json(&json!({"id": id, "new": outcome.is_new()}))?;
        } else {
            writeln!(out, "{id} {}", if outcome.is_new() { "new" } else { "duplicate" })?;
        }
    }
    Ok(())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn aggregate(text: &str) -> Result<(String, String), String> {
    let (kind, id) = text.split_once('/').ok_or("write TYPE/ID, such as Order/42")?;
    Ok((kind.to_owned(), id.to_owned()))
}

fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let at = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc()).ok();
    let after = || {
        parse_duration(text)
            .ok()
            .and_then(|wait| Utc::now().checked_add_signed(chrono::Duration::from_std(wait).ok()?))
    };
    at.or_else(after)
        .ok_or_else(|| "write a time such as 2030-01-31T12:00:00Z, or a wait such as 10m".to_owned())
}
