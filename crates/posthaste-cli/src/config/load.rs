//! Gathers the settings and checks them.

use std::path::{Path, PathBuf};

use figment::providers::{Env, Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider, Source};
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_publishers::Routes;
use posthaste_relay::RelayConfig;
use posthaste_sql::table::Layout;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::problem::{Problem, of_extraction};
use super::{Config, DatabaseUrl, NamedMap, lookup, overlay, publisher, service_link, variable};

/// The file that is read if none is named.
const DEFAULT_FILE: &str = "posthaste.toml";

pub(super) const ENV_PREFIX: &str = "POSTHASTE_";
pub(super) const ENV_SEPARATOR: &str = "__";
pub(super) const FLAG: &str = "flag";

/// Where settings come from besides the defaults and the environment.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The file. Without one, `posthaste.toml` is read if it is there.
    pub file: Option<PathBuf>,
    /// Dotted fields and their values, which override everything else.
    pub flags: Vec<(String, String)>,
}

/// Reads the settings; the error says which one is wrong, where it was given and what to do.
pub fn load(origin: &Origin) -> Result<Config, Problem> {
    refuse_unknown_variables()?;
    let mut figment = Figment::new();
    if let Some(file) = file(origin)? {
        figment = figment.merge(Toml::file_exact(file));
    }
    let environment = Env::prefixed(ENV_PREFIX)
        .filter(|name| name.as_str().contains(ENV_SEPARATOR))
        .split(ENV_SEPARATOR);
    figment = overlay::merge(figment, &environment)?;
    for (field, value) in &origin.flags {
        figment = overlay::merge(figment, &Flag { field, value })?;
    }
    figment = with_kind_of_backoff(figment)?;
    let mut config: Config = figment.extract().map_err(|error| of_extraction(&error, &figment))?;
    apply_map(&mut config, &figment)?;
    check(&config, &figment)?;
    // Commands that publish nothing are not hindered by what only the service's environment has.
    match publisher::read(&figment) {
        Ok(named) => {
            config.named = named;
            config.unusable = check_publishers(&config, &figment).err();
        }
        Err(error) => config.unusable = Some(of_extraction(&error, &figment)),
    }
    Ok(config)
}

/// Reads all settings. Those of publishers are read by their kind, which their type alone would not do with errors that
/// name the field.
pub(super) fn extract(figment: &Figment) -> Result<Config, Box<figment::Error>> {
    let mut config: Config = figment.extract()?;
    config.named = publisher::read(figment)?;
    Ok(config)
}

/// Whoever sets one part of the wait means the kind that has it, and the defaults for the rest.
fn with_kind_of_backoff(figment: Figment) -> Result<Figment, Problem> {
    let Some(Value::Dict(_, backoff)) = lookup::find(&figment, "relay.retry.backoff") else {
        return Ok(figment);
    };
    let value = match (backoff.contains_key("kind"), backoff.contains_key("delays")) {
        (true, _) => return Ok(figment),
        (false, true) => "schedule",
        (false, false) => "exponential",
    };
    let field = "relay.retry.backoff.kind";
    overlay::merge(figment, &Flag { field, value })
}

fn file(origin: &Origin) -> Result<Option<&Path>, Problem> {
    match &origin.file {
        Some(file) if file.is_file() => Ok(Some(file)),
        Some(file) => Err(Problem::new(format!(
            "{}: there is no such file; give --config the path of a TOML file, or leave it out to run on the defaults",
            file.display()
        ))),
        None => default_file(),
    }
}

/// What is there but cannot be read, such as a link to nothing, was meant to be read.
fn default_file() -> Result<Option<&'static Path>, Problem> {
    let file = Path::new(DEFAULT_FILE);
    if !file.is_file() && file.symlink_metadata().is_ok() {
        return Err(Problem::new(format!(
            "{DEFAULT_FILE}: it is there, but it is no file that can be read; fix it, or remove it to run on the defaults"
        )));
    }
    Ok(file.is_file().then_some(file))
}

/// Finds the table map. Its policy comes after the defaults and before what the user says.
fn apply_map(config: &mut Config, figment: &Figment) -> Result<(), Problem> {
    let Some(given) = &config.database.map else {
        return Ok(());
    };
    let problem = |reason: &str| Problem::of_field(figment, "database.map", reason);
    // A path in a file is meant from there.
    let base = lookup::origin(figment, "database.map").and_then(|metadata| match &metadata.source {
        Some(Source::File(path)) => path.parent().map(Path::to_owned),
        _ => None,
    });
    let found = NamedMap::find(given, &base.unwrap_or_default()).map_err(|reason| problem(&reason))?;
    let policy = RelayConfig::with_policy(found.map.policy()).map_err(|invalid| problem(&invalid.to_string()))?;
    let user = lookup::find(figment, "relay").and_then(|relay| serde_json::to_value(relay).ok());
    config.relay = match user {
        Some(serde_json::Value::Object(user)) => policy
            .overlaid("relay", &user)
            .map_err(|invalid| Problem::of_field(figment, &invalid.field, &invalid.remedy))?,
        _ => policy,
    };
    config.database = config.database.clone().with_map(found);
    config.database.max_attempts = config.relay.retry.max_attempts;
    Ok(())
}

/// `POSTHASTE_RELAY_LEASE` would be ignored, and whoever wrote it would not know.
fn refuse_unknown_variables() -> Result<(), Problem> {
    for (name, value) in std::env::vars_os() {
        let key = name.to_str().and_then(|name| name.strip_prefix(ENV_PREFIX));
        if let Some(key) = key
            && !service_link::is_one(key, &value.to_string_lossy())
            && let Some(meant) = variable::meant(key)
        {
            return Err(Problem::new(format!(
                "{ENV_PREFIX}{key}: no setting has this name; section and field are joined by two underscores: {meant}"
            )));
        }
    }
    Ok(())
}

/// What the types alone do not refuse.
fn check(config: &Config, figment: &Figment) -> Result<(), Problem> {
    let problem = |field: &str, reason: &str| Err(Problem::of_field(figment, field, reason));
    if let Err(invalid) = config.relay.validate() {
        return Err(Problem::of_value(
            figment,
            &format!("relay.{}", invalid.field),
            &invalid.value,
            &invalid.remedy,
        ));
    }
    #[cfg(feature = "kafka")]
    check_kafka(&config.kafka, figment)?;
    let database = &config.database;
    if database.prefix.is_some() && database.table_map().is_some() {
        return problem(
            "database.prefix",
            "is for Posthaste's own tables; a table map has the whole names of its tables",
        );
    }
    check_log_layout(config, figment)?;
    let has_schemas = database.url().database().has_schemas();
    if has_schemas && database.prefix.is_some() {
        return problem(
            "database.prefix",
            "is for SQLite and MySQL; PostgreSQL has database.schema instead",
        );
    }
    if !has_schemas && database.schema.is_some() {
        return problem(
            "database.schema",
            "is for PostgreSQL; SQLite and MySQL have database.prefix instead",
        );
    }
    if !matches!(database.url(), DatabaseUrl::Postgres(_))
        && let Some(setting) = database.pooler_setting()
    {
        return problem(setting, "is for PostgreSQL behind a pooler; leave it out");
    }
    if database
        .direct_url
        .as_ref()
        .is_some_and(|url| !matches!(url, DatabaseUrl::Postgres(_)))
    {
        return problem(
            "database.direct_url",
            "is the same PostgreSQL past its pooler; write postgres://user:password@host:5432/database",
        );
    }
    if database.max_connections == 0 {
        return problem("database.max_connections", "must be at least 1");
    }
    if database.acquire_timeout.is_zero() {
        return problem("database.acquire_timeout", "must be above 0");
    }
    if let Some(listen) = config.metrics.listen
        && !listen.ip().is_loopback()
        && !config.metrics.allow_remote
    {
        return problem(
            "metrics.listen",
            "can be reached from other machines; use 127.0.0.1, or set metrics.allow_remote = true if you mean it",
        );
    }
    if let Some((field, reason)) = config.otel.problem() {
        return problem(&field, reason);
    }
    let net = &config.safety_net;
    if net.rotate_bytes == 0 {
        return problem("safety_net.rotate_bytes", "must be above 0");
    }
    if net.max_bytes < net.rotate_bytes {
        return problem("safety_net.max_bytes", "must be at least safety_net.rotate_bytes");
    }
    if net.alert.max_per_minute == 0 {
        return problem("safety_net.alert.max_per_minute", "must be at least 1");
    }
    if !is_filter(&config.log.level) {
        return problem(
            "log.level",
            "use error, warn, info, debug or trace, or a filter such as info,sqlx=debug",
        );
    }
    Ok(())
}

/// What a log cannot have.
fn check_log_layout(config: &Config, figment: &Figment) -> Result<(), Problem> {
    let problem = |field: &str, reason: &str| Err(Problem::of_field(figment, field, reason));
    let database = &config.database;
    if database.layout != Layout::Log {
        return Ok(());
    }
    if database.table_map().is_some() {
        return problem(
            "database.layout",
            "is for Posthaste's own tables; a table map says how its rows live",
        );
    }
    for (setting, namespace) in [
        ("relay.scope.namespace", &config.relay.scope.namespace),
        ("outbox.namespace", &config.outbox.namespace),
    ] {
        if namespace != DEFAULT_NAMESPACE {
            return problem(
                setting,
                "a log has no namespaces, and its relays deliver everything that is in it: leave this out, or give each namespace a \
                 schema or file of its own",
            );
        }
    }
    match database.url() {
        DatabaseUrl::Postgres(_) | DatabaseUrl::Sqlite(_) => {}
        DatabaseUrl::MySql(_) => {
            return problem(
                "database.layout",
                "`log` is not for MySQL and MariaDB, which cannot tell a gap from a transaction that is still open; use `queue`",
            );
        }
    }
    if database.log.segment_age.is_zero() {
        return problem(
            "database.log.segment_age",
            "must be above 0, or each look at the segments would begin another one",
        );
    }
    if database.log.segment_rows == 0 {
        return problem("database.log.segment_rows", "must be at least 1");
    }
    Ok(())
}

/// A word that is no level would be taken for the name of a module, and everything else would fall silent.
fn is_filter(text: &str) -> bool {
    let says_level = |directive: &str| directive.contains('=') || directive.trim().parse::<LevelFilter>().is_ok();
    text.split(',').all(says_level) && EnvFilter::try_new(text).is_ok()
}

/// Publishers have names of their own, and every message goes to one of them.
fn check_publishers(config: &Config, figment: &Figment) -> Result<(), Problem> {
    let context = config.publisher_context();
    for publisher in &config.named {
        publisher.check(&context, figment)?;
    }
    let names: Vec<String> = config.named.iter().map(|publisher| publisher.name.clone()).collect();
    if let Some((place, name)) = names
        .iter()
        .enumerate()
        .find(|(place, name)| names[..*place].contains(name))
    {
        let reason = format!("there are two publishers called {name:?}; give each a name");
        let field = format!("publishers.{place}.name");
        return Err(Problem::of_value(figment, &field, &format!("{name:?}"), &reason));
    }
    match Routes::new(config.routes.clone(), &names) {
        Ok(_) => Ok(()),
        Err(_) if names.len() < 2 && config.routes.is_empty() => Ok(()),
        Err(invalid) => Err(Problem::of_value(
            figment,
            &invalid.field,
            &invalid.value,
            &invalid.remedy,
        )),
    }
}

#[cfg(feature = "kafka")]
fn check_kafka(kafka: &super::kafka::KafkaConfig, figment: &Figment) -> Result<(), Problem> {
    let wrong = |field: &str, value: &str, remedy: &str| {
        let field = format!("kafka.{field}");
        Problem::of_value(figment, &field, value, remedy)
    };
    kafka
        .declared_topics()
        .validate()
        .map_err(|invalid| wrong(&invalid.field, &invalid.value, &invalid.remedy))?;
    let settings = kafka.settings();
    if settings.brokers.is_empty() {
        // Not everybody has a cluster; what needs one says what is missing.
        return Ok(());
    }
    match settings.client_config(&[]) {
        Ok(_) => Ok(()),
        Err(invalid) => Err(wrong(&invalid.field, &invalid.value, &invalid.remedy)),
    }
}

/// One setting given on the command line.
pub(super) struct Flag<'a> {
    pub(super) field: &'a str,
    pub(super) value: &'a str,
}

impl Provider for Flag<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(FLAG)
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let value: Value = self.value.parse().unwrap_or_else(|never| match never {});
        let nested = keys(self.field)
            .into_iter()
            .rev()
            .fold(value, |value, key| Value::from(Dict::from([(key, value)])));
        Ok(Profile::Default.collect(nested.into_dict().unwrap_or_default()))
    }
}

/// The keys of a dotted name; as in TOML, dots in quotes are part of a key.
fn keys(field: &str) -> Vec<String> {
    let mut keys = vec![String::new()];
    let mut quote = None;
    for one in field.chars() {
        match one {
            '.' if quote.is_none() => keys.push(String::new()),
            '"' | '\'' if quote.is_none() => quote = Some(one),
            _ if quote == Some(one) => quote = None,
            _ => keys.last_mut().expect("there is a first one").push(one),
        }
    }
    keys
}
