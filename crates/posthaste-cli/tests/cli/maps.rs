//! `maps`, and every other command on existing tables.

use crate::fleet;
use crate::support::Place;

/// A table with names of its own, on each database, and the quotes of its names.
struct Table {
    place: Place,
    ddl: &'static str,
    quote: char,
}

const POSTGRES: &str = r#"create type parcel_status as enum ('NEW', 'PROCESSING', 'SENT', 'DEAD');
create table "Parcel Events" (
    "eventId" uuid primary key, "aggregateType" varchar(50) not null, "aggregateId" text not null, "type" text not null,
    payload jsonb not null, status parcel_status not null default 'NEW',
    attempts int not null default 0, "lockedBy" varchar(80), "lockedUntil" timestamptz, "nextAttemptAt" timestamptz,
    "lastError" varchar(500), "createdAt" timestamptz not null default now(), "sentAt" timestamptz)"#;

const MARIADB: &str = "create table `Parcel Events` (
    `eventId` char(36) primary key, `aggregateType` varchar(50) not null, `aggregateId` varchar(100) not null,
    `type` varchar(100) not null, payload longtext not null,
    status varchar(20) not null default 'NEW' check (status in ('NEW', 'PROCESSING', 'SENT', 'DEAD')),
    attempts int not null default 0, `lockedBy` varchar(80), `lockedUntil` datetime(6), `nextAttemptAt` datetime(6),
    `lastError` varchar(500), `createdAt` datetime(6) not null, `sentAt` datetime(6))";

const SQLITE: &str = r#"create table "Parcel Events" (
    "eventId" text primary key, "aggregateType" text not null, "aggregateId" text not null, "type" text not null,
    payload text not null, status text not null default 'NEW' check (status in ('NEW', 'PROCESSING', 'SENT', 'DEAD')),
    attempts integer not null default 0, "lockedBy" text, "lockedUntil" datetime, "nextAttemptAt" datetime,
    "lastError" text, "createdAt" datetime not null, "sentAt" datetime)"#;

impl Table {
    fn sqlite() -> Self {
        Self {
            place: Place::with_sqlite(),
            ddl: SQLITE,
            quote: '"',
        }
    }

    fn postgres() -> Option<Self> {
        Some(Self {
            place: Place::with_postgres()?,
            ddl: POSTGRES,
            quote: '"',
        })
    }

    fn mariadb() -> Option<Self> {
        Some(Self {
            place: Place::with_mariadb()?,
            ddl: MARIADB,
            quote: '`',
        })
    }

    /// Creates the table, and the map that is proposed for it.
    fn with_proposal(self) -> (Place, String) {
        self.place.sql(self.ddl);
        let schema = self.place.setting("DATABASE__SCHEMA").map(str::to_owned);
        let mut args = vec!["maps", "infer", "--table", "Parcel Events"];
        if let Some(schema) = &schema {
            args.extend(["--schema", schema]);
        }
        let proposal = self.place.run(&args).success().stdout;
        self.place.write("outbox.toml", &proposal);
        let place = self.place.set("DATABASE__MAP", "./outbox.toml");
        (place.set("PUBLISHER__KIND", "stdout"), proposal)
    }
}

macro_rules! on_every_server {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $case() {
                super::$case(super::Table::sqlite());
            })*
        }

        mod postgres {
            $(#[test]
            fn $case() {
                super::Table::postgres().into_iter().for_each(super::$case);
            })*
        }

        mod mariadb {
            $(#[test]
            fn $case() {
                super::Table::mariadb().into_iter().for_each(super::$case);
            })*
        }
    };
}

on_every_server!(
    a_proposed_map_serves_every_command,
    a_check_prints_the_sql_that_fixes,
    a_table_that_does_not_fit_is_refused_before_anything_is_claimed,
    one_relay_of_a_fleet_counts_an_existing_table_and_the_next_takes_over,
);

const PARCEL: [&str; 8] = [
    "--key",
    "P1",
    "--aggregate",
    "Parcel/P1",
    "--type",
    "acme.parcel.sent.v1",
    "--payload",
    r#"{"parcel": "P1"}"#,
];

fn one_relay_of_a_fleet_counts_an_existing_table_and_the_next_takes_over(table: Table) {
    let quote = table.quote;
    let (place, _) = table.with_proposal();
    place.enqueue(&PARCEL);
    place.sql(&format!("update {quote}Parcel Events{quote} set status = 'DEAD'"));
    fleet::one_counts_and_the_next_takes_over(&place, &[], "outbox_dead_count", "", 1);
}

fn a_proposed_map_serves_every_command(table: Table) {
    let quote = table.quote;
    let (place, proposal) = table.with_proposal();
    assert!(proposal.contains("# To decide: "), "{proposal}");
    assert!(
        !proposal.contains("# a guess"),
        "the constraint says the labels: {proposal}"
    );
    let checked = place.run(&["run", "--check"]).success().stdout;
    assert!(checked.contains("table map parcel-events fits"), "{checked}");
    let exclusive = ["--set", "relay.exclusive=true"];
    for command in [&["run", "--check"][..], &["run"]] {
        place
            .run(&[command, &exclusive].concat())
            .fails_with(&["exclusive", "leave it out"]);
    }
    let migrated = place.run(&["migrate", "up"]).success().stdout;
    for part in [
        "are yours",
        "`posthaste maps check --map ./outbox.toml`",
        "`posthaste maps show ./outbox.toml --ddl`",
    ] {
        assert!(migrated.contains(part), "`{part}`: {migrated}");
    }

    let id = place.enqueue(&PARCEL);
    let status = place.status();
    assert_eq!(
        (&status["pending"], &status["map"]),
        (&1.into(), &"parcel-events".into()),
        "{status}"
    );
    let delivered = place.run(&["run", "--drain"]).success();
    assert!(
        delivered.stdout.contains(&id) && delivered.stdout.contains("P1"),
        "{delivered:?}"
    );
    assert_eq!(place.status()["pending"], 0);

    place.sql(&format!(
        "update {quote}Parcel Events{quote} set status = 'DEAD', {quote}lastError{quote} = 'no such berth'"
    ));
    let listed = place.run(&["dead", "list"]).success().stdout;
    assert!(listed.contains(&id) && listed.contains("no such berth"), "{listed}");
    let shown = place.run(&["dead", "show", &id]).success().stdout;
    assert!(shown.contains("\"topic\": \"parcel-events\""), "{shown}");
    assert_eq!(place.run(&["dead", "replay", &id]).success().stdout, "replayed 1\n");
    assert!(place.run(&["run", "--drain"]).success().stdout.contains(&id));

    place.enqueue(&PARCEL);
    place.sql(&format!(
        "update {quote}Parcel Events{quote} set status = 'DEAD' where status = 'NEW'"
    ));
    assert_eq!(
        place.run(&["dead", "discard", "--key", "P1", "--yes"]).success().stdout,
        "discarded 1\n"
    );
    assert_eq!(
        place.run(&["purge", "--older-than", "0s", "--yes"]).success().stdout,
        "removed 1 rows\n"
    );
    let printed = place.run(&["sql"]).success().stdout;
    assert!(printed.contains(&format!("{quote}Parcel Events{quote}")), "{printed}");
}

/// A line is a message as the flags are.
#[test]
fn lines_may_leave_out_a_topic_that_is_derived() {
    let (place, _) = Table::sqlite().with_proposal();
    let map = place.read("outbox.toml");
    let rule = map.lines().find(|line| line.starts_with("topic = ")).unwrap();
    let derived = r#"topic = { template = "{aggregate_type:lower}-moves" }"#;
    place.write("outbox.toml", &map.replace(rule, derived));
    let line = |fields: &str| {
        format!(r#"{{{fields} "key": "P1", "aggregate_id": "P1", "type": "acme.parcel.sent.v1", "payload": {{}}}}"#)
    };
    let lines = |fields: &str| place.run_with_input(&["enqueue", "--stdin"], &line(fields));
    let flags = |args: &[&str]| place.run(&[&["enqueue"], args, &PARCEL].concat());

    lines(r#""aggregate_type": "Parcel","#).success();
    lines(r#""aggregate_type": "Parcel", "topic": "parcel-moves","#).success();
    flags(&[]).success();
    flags(&["--topic", "parcel-moves"]).success();
    let drained = place.run(&["run", "--drain"]).success().stdout;
    assert_eq!(drained.matches("parcel-moves").count(), 4, "{drained}");

    let other = ["would go to `parcel-moves`, not to `x`", "leave it out"];
    flags(&["--topic", "x"]).fails_with(&[&["--topic: "][..], &other].concat());
    lines(r#""aggregate_type": "Parcel", "topic": "x","#).fails_with(&[&["line 1: topic"][..], &other].concat());
    let cannot = "the table map `parcel-events` derives it, and cannot: the row has no aggregate_type";
    lines("").fails_with(&["nothing was written", &format!("line 1: topic: {cannot}")]);
    place
        .run(&["enqueue", "--key", "P1", "--payload", "1"])
        .fails_with(&[&format!("--topic: {cannot}; give --aggregate TYPE/ID")]);
}

fn a_check_prints_the_sql_that_fixes(table: Table) {
    let quote = table.quote;
    let (place, _) = table.with_proposal();
    place.sql(&format!(
        "alter table {quote}Parcel Events{quote} drop column {quote}lockedUntil{quote}"
    ));
    let broken = place.run(&["maps", "check"]);
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(broken.stdout.contains("-- error: columns.locked_until: "), "{broken:?}");
    let found = place.run(&["maps", "check", "--json"]).json();
    for finding in found["findings"].as_array().unwrap() {
        place.sql(finding["fix"].as_str().unwrap_or_else(|| panic!("{finding}")));
    }
    let fixed = place.run(&["maps", "check"]).success().stdout;
    assert!(fixed.ends_with("-- all is as the map says\n"), "{fixed}");
}

fn a_table_that_does_not_fit_is_refused_before_anything_is_claimed(table: Table) {
    let quote = table.quote;
    let (place, _) = table.with_proposal();
    place.sql(&format!("alter table {quote}Parcel Events{quote} drop column attempts"));
    let enqueue = [&["enqueue"], &PARCEL[..]].concat();
    for args in [&["run", "--drain"][..], &["run", "--check"], &["status"], &enqueue] {
        place
            .run(args)
            .fails_with(&["columns.attempts", "`posthaste maps check --map ./outbox.toml`"]);
    }
}

/// A table is found by the schema before its name, and in the schema of the settings.
#[test]
fn a_table_in_a_schema_is_found_by_either_way_to_name_it() {
    let Some(Table { place, ddl, .. }) = Table::postgres() else {
        return;
    };
    place.sql(ddl);
    let schema = place.setting("DATABASE__SCHEMA").unwrap().to_owned();
    let expected = format!("outbox = {{ schema = \"{schema}\", name = \"Parcel Events\" }}");
    let qualified = format!("{schema}.Parcel Events");
    for table in [qualified.as_str(), "Parcel Events"] {
        let proposal = place.run(&["maps", "infer", "--table", table]).success().stdout;
        assert!(proposal.contains(&expected), "{table}: {proposal}");
    }
    let elsewhere = place.set("DATABASE__SCHEMA", "pg_catalog");
    let proposal = elsewhere
        .run(&["maps", "infer", "--table", &qualified])
        .success()
        .stdout;
    assert!(proposal.contains(&expected), "{proposal}");
    elsewhere
        .run(&["maps", "infer", "--table", "Parcel Events"])
        .fails_with(&["there is no table"]);
}

/// Whatever it is called, a queue needs the time at which a row was created.
#[test]
fn a_lone_time_is_taken_for_that_of_creation() {
    let Some(place) = Place::with_postgres() else { return };
    place.sql(
        "create table outbox (id uuid primary key, payload text not null, status text not null default 'PENDING', ts timestamptz);
         create table bare (id uuid primary key, payload text not null, status text not null default 'PENDING')",
    );
    let proposal = place.run(&["maps", "infer", "--table", "outbox"]).success().stdout;
    for part in [
        "created_at = ",
        "# To decide: is ts the time at which a row was created",
    ] {
        assert!(proposal.contains(part), "{part}: {proposal}");
    }
    let bare = place.run(&["maps", "infer", "--table", "bare"]).success().stdout;
    assert!(
        bare.contains("# To decide: which column says when a row was created (created_at)?"),
        "{bare}"
    );
    place.write("bare.toml", &bare);
    place
        .run(&[
            "run",
            "--check",
            "--set",
            "database.map=./bare.toml",
            "--set",
            "publisher.kind=log",
        ])
        .fails_with(&["columns.created_at: every queue needs it"]);
}

/// Nothing that could change business data or hold up events is mapped without a word.
#[test]
fn what_a_proposal_leaves_out_is_said() {
    let place = Place::with_sqlite();
    place.sql(
        "create table outbox (id integer primary key autoincrement, aggregate_id text, version integer, metadata text,
            payload text not null, status text not null default 'PENDING', created_at datetime)",
    );
    place.sql(
        r#"insert into outbox (aggregate_id, version, metadata, payload, status) values
            ('a', 1, '{"user": {"id": 7}}', '{}', 'PENDING'), ('a', 2, '{"retries": 3}', '{}', 'FAILED'),
            ('a', 3, '{}', '{}', 'DEAD'), ('a', 4, '{}', '{}', 'SENT')"#,
    );
    let proposal = place.run(&["maps", "infer", "--table", "outbox"]).success().stdout;
    for part in [
        "# in no role: version (integer); ",
        "# in no role: metadata (text); ",
        "waiting = \"FAILED\" # a guess",
        "# To decide: are rows with \"FAILED\" in status to be tried again?",
    ] {
        assert!(proposal.contains(part), "{part}: {proposal}");
    }
    place.write("outbox.toml", &proposal);
    let checked = place.run(&["maps", "check", "--map", "./outbox.toml"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    for part in [
        "alter table \"outbox\" add column \"locked_by\" text null;",
        "alter table \"outbox\" add column \"locked_until\" integer null;",
        "-- warning: constants.source: ids such as 1",
    ] {
        assert!(checked.stdout.contains(part), "{part}: {checked:?}");
    }
}

/// The likeliest slips, said in the words of maps.
#[test]
fn an_error_in_a_map_names_its_field_and_line_once() {
    let place = Place::with_sqlite();
    let sound = place.run(&["maps", "show", "usage"]).success().stdout;
    let changed = sound.replace("[columns]", "[columns]\nheaders = { column = \"h\", kind = \"txt\" }");
    let line = 2 + changed.lines().position(|line| line == "[columns]").unwrap();
    place.write("bad.toml", &changed);
    place
        .run(&["maps", "check", "--map", "./bad.toml"])
        .fails_with(&[&format!(
            "table map ./bad.toml: columns.headers.kind: \"txt\" is no kind; use jsonb, json, text (line {line})"
        )]);
    place.write("bad.toml", &sound.replace("payload = ", "paylod = "));
    place
        .run(&["maps", "check", "--map", "./bad.toml"])
        .fails_with(&["columns.paylod: there is no such role; did you mean payload?"]);
}

/// Rights stand in no description of a table: they are found by trying.
#[test]
fn a_check_tries_what_a_relay_would_do() {
    let Some(table) = Table::postgres() else {
        return;
    };
    let (place, _) = table.with_proposal();
    let schema = place.setting("DATABASE__SCHEMA").unwrap().to_owned();
    let role = format!("role_{schema}");
    place.run(&["maps", "check"]).success();
    place.sql(&format!(
        "create role {role} login; grant usage on schema {schema} to {role}"
    ));
    let url = place.setting("DATABASE__URL").unwrap().to_owned();
    let (protocol, rest) = url.split_once("://").unwrap();
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    let refused = place.set("DATABASE__URL", &format!("{protocol}://{role}@{host}"));
    let checked = refused.run(&["maps", "check"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(
        checked.stdout.contains("-- error: verdicts: ") && checked.stdout.contains("permission denied"),
        "{checked:?}"
    );
    let found = refused.run(&["maps", "check", "--json"]).json();
    let fields: Vec<_> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| &finding["field"])
        .collect();
    assert!(fields.contains(&&"verdicts".into()), "{found}");
    let owner = refused.set("DATABASE__URL", &url);
    owner.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn builtin_maps_are_listed_and_shown() {
    let place = Place::empty();
    let listed = place.run(&["maps", "list"]).success().stdout;
    for part in [
        "usage",
        "leases",
        "row locks",
        "cursor",
        "donation_outbox",
        "PostgreSQL, status poller",
    ] {
        assert!(listed.contains(part), "`{part}` is not in {listed}");
    }
    let json = place.run(&["maps", "list", "--json"]).success();
    assert_eq!(json.json()["name"], "usage");
    assert!(
        place
            .run(&["maps", "show", "usage"])
            .success()
            .stdout
            .contains("[columns]")
    );
    let ddl = place.run(&["maps", "show", "donation", "--ddl"]).success().stdout;
    assert!(ddl.contains("create table donation_dlq"), "{ddl}");
    let shown = place.run(&["maps", "show", "usage"]).success().stdout;
    place.write("mine.toml", &shown);
    let ddl = place
        .run(&["maps", "show", "./mine.toml", "--ddl", "--backend", "mysql"])
        .success()
        .stdout;
    assert!(ddl.contains("create table `modkit_outbox_events`"), "{ddl}");
}

#[test]
fn a_map_that_cannot_be_used_is_refused_with_the_remedy() {
    let place = Place::with_sqlite();
    for (map, parts) in [
        (
            "usge",
            &[
                "database.map = \"usge\"",
                "did you mean usage?",
                "order-service",
                "DATABASE__MAP",
            ][..],
        ),
        ("./none.toml", &["cannot read ./none.toml"]),
        (
            "order-service",
            &["order-service", "SQLite has no row locks", "locked_until"],
        ),
        ("commerce", &["commerce", "PostgreSQL only"]),
    ] {
        let ran = Place::with_sqlite().set("DATABASE__MAP", map);
        ran.sql("create table t (id integer)");
        ran.run(&["status"]).fails_with(parts);
    }
    place.write("bad.toml", "name = \"x\"\norder = 7\n");
    let bad = place.set("DATABASE__MAP", "bad.toml").run(&["status"]);
    assert!(
        bad.stderr.contains("bad.toml") && bad.stderr.contains("line 2"),
        "{bad:?}"
    );
    let prefixed = Place::with_sqlite()
        .set("DATABASE__MAP", "usage")
        .set("DATABASE__PREFIX", "p_");
    prefixed
        .run(&["status"])
        .fails_with(&["database.prefix", "Posthaste's own tables"]);
}

/// The policy of a map comes after the defaults and before what the user says, and a path is meant from the file it
/// stands in.
#[test]
fn the_settings_of_a_user_override_those_of_a_map() {
    let place = Place::empty();
    std::fs::create_dir(place.path("etc")).unwrap();
    let shown = place.run(&["maps", "show", "usage"]).success().stdout;
    place.write("etc/outbox.toml", &shown.replace("lease = \"30s\"", "lease = \"3s\""));
    let settings = "[database]\nurl = \"postgres://127.0.0.1:1/none\"\nmap = \"outbox.toml\"\n";
    place.write("etc/posthaste.toml", settings);
    // The map's poll interval of one second goes with a lease of three, and not with a user's of two.
    let run = |more: &[&str]| place.run(&[&["--config", "etc/posthaste.toml", "sql"], more].concat());
    run(&[]).success();
    run(&["--set", "relay.lease=2s"]).fails_with(&["relay.poll_interval = 1s", "third of lease"]);
    run(&[
        "--set",
        "relay.lease=2s",
        "--set",
        "relay.poll_interval=500ms",
        "--set",
        "relay.max_poll_interval=500ms",
    ])
    .success();
    place.write(
        "etc/outbox.toml",
        &shown.replace("[policy]", "[policy]\nbatch_sise = 3"),
    );
    run(&[]).fails_with(&["database.map", "batch_sise"]);
}

#[test]
fn statements_of_a_map_are_printed_without_a_database() {
    let place = Place::empty();
    for (backend, map, part) in [
        ("postgres", "usage", "\"modkit_outbox_events\""),
        ("postgres", "commerce", "\"outbox_cursor\""),
        ("postgres", "order-service", "for update"),
        ("mysql", "donation", "`donation_dlq`"),
    ] {
        let printed = place.run(&["sql", "--backend", backend, "--map", map]).success().stdout;
        assert!(printed.to_lowercase().contains(part), "{map}: {printed}");
    }
    place
        .run(&["sql", "--backend", "sqlite", "--map", "logistics"])
        .fails_with(&["SQLite has no row locks"]);
}
