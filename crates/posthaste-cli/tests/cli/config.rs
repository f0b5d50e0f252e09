//! Settings: where they come from, and what is said about bad ones.

use crate::support::{Place, TO_STDOUT};

/// Runs on a file with these lines; the message must have these parts.
#[track_caller]
fn refused(lines: &str, parts: &[&str]) {
    let place = Place::empty();
    place.write("posthaste.toml", lines);
    place
        .run(&["run"])
        .fails_with(&[parts, &["(in posthaste.toml, line "]].concat());
}

#[test]
fn an_unknown_key_is_refused_with_the_one_that_was_meant() {
    refused(
        "[relay]\nbath_size = 5",
        &["relay.bath_size: unknown key; did you mean relay.batch_size?"],
    );
    refused(
        "[relay.retry]\nmax_atempts = 5",
        &["relay.retry.max_atempts", "did you mean relay.retry.max_attempts?"],
    );
    refused(
        "[databse]\nurl = 'x'",
        &["databse: unknown key; did you mean database?"],
    );
    refused(
        "[metrics]\nzzz = 1",
        &["metrics.zzz: unknown key; known are listen, allow_remote"],
    );
}

#[test]
fn a_bad_value_is_refused_with_field_value_and_remedy() {
    refused(
        "[relay]\nlease = 'abc'",
        &["relay.lease = \"abc\": ", "such as \"500ms\""],
    );
    refused("[relay]\nlease = 30", &["relay.lease = 30: ", "with its unit"]);
    refused(
        "[relay]\nbatch_size = 'x'",
        &["relay.batch_size = \"x\": write a whole number"],
    );
    refused("[relay]\nbatch_size = -1", &["relay.batch_size = -1: "]);
    refused("[relay]\nbatch_size = 0", &["relay.batch_size = 0: must be at least 1"]);
    refused(
        "[relay]\npoll_interval = '20s'",
        &["relay.poll_interval = 20s: ", "a third of lease"],
    );
    refused(
        "[relay.retry.backoff]\nkind = 'exponential'\nbase = '1x'\nmax = '1m'\njitter = true",
        &["relay.retry.backoff.base = \"1x\": not a duration"],
    );
    refused(
        "[publisher]\nkind = 'fiel'",
        &["publisher.kind = \"fiel\": ", "stdout or file", "did you mean file?"],
    );
    refused(
        "[publisher]\npath = 'x'",
        &["publisher.path = \"x\": ", "publisher.kind = \"file\""],
    );
    refused(
        "[database]\nmax_connections = 0",
        &["database.max_connections = 0: must be at least 1"],
    );
    refused(
        "[database]\nschema = 'x'",
        &["database.schema = \"x\": is for PostgreSQL; SQLite and MySQL have database.prefix"],
    );
    refused(
        "[log]\nlevel = 'warning'",
        &["log.level = \"warning\": use error, warn"],
    );
    refused("[log]\nlevel = 'a=b=c'", &["log.level = \"a=b=c\": use error, warn"]);
    // Not in a file: tests have set it in the environment.
    let yaml = Place::empty().run(&["status", "--set", "log.format=yaml"]);
    yaml.fails_with(&["log.format = \"yaml\": unknown value; use auto or text or json"]);
    refused(
        "[metrics]\nlisten = '0.0.0.0:9464'",
        &[
            "metrics.listen = \"0.0.0.0:9464\": ",
            "use 127.0.0.1",
            "metrics.allow_remote",
        ],
    );
}

/// Whoever takes one kind of setting for another is told what can be written there.
#[test]
fn a_value_of_another_kind_is_refused_with_the_legal_ones() {
    let backoff = [
        r#"{ kind = "exponential", base = "1s", max = "5m", jitter = true }"#,
        r#"{ kind = "schedule", delays = ["100ms", "1s"] }"#,
    ];
    for value in ["'1s'", "5", "'exponential'", "['1s', '2s']"] {
        let parts = ["relay.retry.backoff = ", backoff[0], backoff[1]];
        refused(&format!("[relay.retry]\nbackoff = {value}"), &parts);
    }
    refused(
        "[relay.retry.backoff]\nkind = 'schedule'\ndelays = '1s'",
        &["relay.retry.backoff.delays = \"1s\": write a list"],
    );
    refused(
        "[relay.retry.backoff]\nkind = 'schedule'\ndelays = ['1s', 5]",
        &["relay.retry.backoff.delays = [\"1s\",5]: not a duration"],
    );
    refused(
        "[relay.retry.backoff]\nkind = 'schedule'\ndelays = []",
        &[
            "relay.retry.backoff = ",
            "at least one wait is needed, such as [\"1s\"]",
        ],
    );
    for value in ["'1s'", "5", "true"] {
        refused(
            &format!("[relay.ordering]\ndead_head = {value}"),
            &["relay.ordering.dead_head = ", "unknown value; use skip or block"],
        );
        refused(
            &format!("[publisher]\nkind = {value}"),
            &["publisher.kind = ", "unknown value; use stdout or file or log"],
        );
        refused(
            &format!("[database]\npooling = {value}"),
            &["database.pooling = ", "use detect or session or transaction"],
        );
        refused(
            &format!("[relay]\nexclusive = {}", value.replace("true", "2")),
            &["relay.exclusive = ", "write true or false"],
        );
        refused(
            &format!("[metrics]\nlisten = {value}"),
            &[
                "metrics.listen = ",
                "write an address and a port, such as \"127.0.0.1:9464\"",
            ],
        );
    }
    for value in ["'block'", "true", "5"] {
        refused(
            &format!("[relay]\nlease = {value}"),
            &["relay.lease = ", "not a duration", "\"30s\""],
        );
    }
}

#[test]
fn the_file_publisher_needs_a_path() {
    let ran = Place::empty().run(&["run", "--set", "publisher.kind=file"]);
    ran.fails_with(&["publisher.path: is missing", "publisher.path = \"events.jsonl\""]);
}

#[test]
fn an_empty_path_is_no_path() {
    let ran = Place::empty().run(&["run", "--set", "publisher.kind=file", "--set", "publisher.path="]);
    ran.fails_with(&["publisher.path = \"\": name a file"]);
    let ran = Place::empty().set("CONFIG", "").run(&["run"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("POSTHASTE_CONFIG is empty"), "{ran:?}");
}

/// What only the service's environment has is of no concern to operators' commands.
#[test]
fn commands_that_publish_nothing_need_no_settings_of_a_publisher() {
    let place = Place::with_sqlite().migrated();
    place.write("posthaste.toml", "[publisher]\nkind = 'http'\n");
    place.run(&["status"]).success();
    place.run(&["dead", "list"]).success();
    place.run(&["run"]).fails_with(&["publisher.url: is missing"]);
}

#[test]
fn one_part_of_the_wait_between_attempts_may_be_set() {
    for flag in [
        "max=2s",
        "base=100ms",
        "jitter=false",
        "delays=[\"1s\"]",
        "kind=exponential",
    ] {
        let flag = format!("relay.retry.backoff.{flag}");
        Place::with_sqlite()
            .migrated()
            .run(&["status", "--set", &flag])
            .success();
    }
    let ran = Place::empty().run(&["run", "--set", "relay.retry.backoff.max=soon"]);
    ran.fails_with(&["relay.retry.backoff.max = \"soon\": not a duration"]);
}

#[test]
fn a_password_is_never_quoted() {
    let secret = "hush";
    for lines in [
        "[database]\nurl = 'oracle://ann:hush@db/shop'",
        "[database]\nurl = 'postgres://ann:hush@db/shop",
        "[database]\nurl = 'postgres://ann:hush@db:port/shop'",
        "[database]\nurl = 'mysql://ann:hush@db:port/shop'",
        "[database]\nurl = 'host=db password=hush'",
        "[publisher]\nkind = 'http'\nheaders = { authorization = 'Bearer hush' x",
        "[publisher]\nheaders.authorization = 'Bearer hush",
        "[publisher.headers]\nx-api-key = hush",
        "[publisher]\nconnection = { properties = { 'sasl.password' = 'hush'",
        "[publisher]\nconnection = { brokers = ['a:1'], properties = 'sasl.password=hush' }\nkind = 'kafka'",
        "[publisher]\nkind = 'http'\nsigning_secrets = [\n  'whsec_a',\n  'whsec_hush\n]",
        "[[publishers]]\nkind = 'http'\nurl = 'hush'",
        "[[publishers]]\nkind = 'http'\nurl = 'http://h/'\nheaders = 'hush'",
        "publishers = 'hush'",
        "publisher = 'hush'",
    ] {
        let place = Place::empty();
        place.write("posthaste.toml", lines);
        let ran = place.run(&["run"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(!ran.stderr.contains(secret), "{ran:?}");
    }
    for flag in ["bearer_token=hush", "hush"] {
        let ran = Place::empty().run(&["run", "--set", flag]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("write the dotted field"), "{ran:?}");
        assert!(!ran.stderr.contains(secret), "{ran:?}");
    }
    for args in [&["run", "publisher.url=hush"][..], &["publisher.url=hush"]] {
        let ran = Place::empty().run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.stderr.contains("publisher.url=***") && !ran.stderr.contains(secret),
            "{ran:?}"
        );
    }
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_its_place_and_its_key() {
    let place = Place::empty();
    place.write("posthaste.toml", "[publisher]\nkind = 'http\n");
    let ran = place.run(&["run"]);
    ran.fails_with(&["posthaste.toml: TOML parse error at line 2, column 13"]);
    assert!(
        ran.stderr.contains("kind = ***") && ran.stderr.contains("invalid literal string"),
        "{ran:?}"
    );
}

#[test]
fn a_bad_environment_variable_is_named() {
    let ran = Place::empty().set("RELAY__BATCH_SIZE", "x").run(&["run"]);
    ran.fails_with(&["relay.batch_size = \"x\": ", "POSTHASTE_RELAY__BATCH_SIZE"]);
    let ran = Place::empty().set("RELAY__BATSCH_SIZE", "5").run(&["run"]);
    ran.fails_with(&["did you mean relay.batch_size?", "POSTHASTE_RELAY__BATSCH_SIZE"]);
    let ran = Place::empty().set("RELAY_BATCH_SIZE", "5").run(&["run"]);
    ran.fails_with(&["POSTHASTE_RELAY_BATCH_SIZE: ", "POSTHASTE_RELAY__BATCH_SIZE"]);
    for (name, meant) in [
        ("PUBLISHERS", "POSTHASTE_PUBLISHERS__<NUMBER>__<FIELD>"),
        ("_PUBLISHERS", "POSTHASTE_PUBLISHERS__<NUMBER>__<FIELD>"),
        ("PUBLISHERS_URL", "POSTHASTE_PUBLISHERS__<NUMBER>__URL"),
        ("ROUTES_TO", "POSTHASTE_ROUTES__<NUMBER>__TO"),
        ("LOG", "POSTHASTE_LOG__<FIELD>"),
    ] {
        let ran = Place::empty().set(name, "x").run(&["run"]);
        ran.fails_with(&[&format!("POSTHASTE_{name}: no setting has this name"), meant]);
    }
}

/// A Service called `posthaste-relay` sets these in every pod of its namespace.
#[test]
fn the_service_links_of_kubernetes_are_no_settings() {
    let links = [
        ("RELAY_SERVICE_HOST", "10.0.0.11"),
        ("RELAY_SERVICE_PORT", "9090"),
        ("RELAY_SERVICE_PORT_METRICS", "9090"),
        ("RELAY_PORT", "tcp://10.0.0.11:9090"),
        ("RELAY_PORT_9090_TCP", "tcp://10.0.0.11:9090"),
        ("RELAY_PORT_9090_TCP_PROTO", "tcp"),
        ("RELAY_PORT_9090_TCP_PORT", "9090"),
        ("RELAY_PORT_9090_TCP_ADDR", "10.0.0.11"),
    ];
    let in_pod = || {
        links
            .iter()
            .fold(Place::with_sqlite(), |place, (name, value)| place.set(name, value))
    };
    in_pod().run(&["migrate", "up"]).success();
    let misspelt = in_pod().set("RELAY_BATCHSIZE", "5").run(&["migrate", "up"]);
    misspelt.fails_with(&["POSTHASTE_RELAY_BATCHSIZE: no setting has this name"]);
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let place = Place::empty();
    place.write("posthaste.toml", "[database]\nurl = 'sqlite://file.db'");
    let database = |place: &Place, args: &[&str]| {
        let check = ["run", "--check", "--set", "database.auto_migrate=true"];
        let args = [&check, &TO_STDOUT[..], args].concat();
        let ran = place.run(&args).success();
        ran.stdout
            .lines()
            .find(|line| line.starts_with("database"))
            .unwrap()
            .to_owned()
    };
    assert!(database(&place, &[]).contains("sqlite://file.db"));
    let place = place.set("DATABASE__URL", "sqlite://environment.db");
    assert!(database(&place, &[]).contains("sqlite://environment.db"));
    assert!(database(&place, &["--set", "database.url=sqlite://set.db"]).contains("sqlite://set.db"));
    assert!(database(&place, &["--database-url", "sqlite://flag.db"]).contains("sqlite://flag.db"));
}

#[test]
fn a_named_file_must_be_there_and_be_toml() {
    let place = Place::empty();
    place
        .run(&["run", "--config", "other.toml"])
        .fails_with(&["other.toml: there is no such file", "--config"]);
    place.write("other.toml", "[relay");
    place
        .run(&["run", "--config", "other.toml"])
        .fails_with(&["other.toml: TOML parse error at line 1"]);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_program_without_kafka_says_so() {
    refused(
        "[publisher]\nkind = 'kafka'\nformat = 'binary'\n[kafka]\nbrokers = 'a:1'",
        &[
            "publisher.kind = \"kafka\": this program was built without Kafka",
            "feature `kafka`",
        ],
    );
}

/// The keys of a section, by what is said of a key that it does not have; nothing for what is no section.
fn keys(place: &Place, section: &str) -> Option<Vec<String>> {
    let unknown = [section, "~"].join(if section.is_empty() { "" } else { "." });
    let variable = format!("POSTHASTE_{}", unknown.to_uppercase().replace('.', "__"));
    let ran = if section.is_empty() {
        place.write("posthaste.toml", "['~']");
        place.run(&["run", "--check"])
    } else {
        place.write("posthaste.toml", "");
        crate::support::Ran::of(place.command(&["run", "--check"]).env(variable, "1"), "")
    };
    let (_, known) = ran.stderr.split_once("unknown key; known are ")?;
    let known = known.lines().next().unwrap();
    let known = known.split_once(" (in ").map_or(known, |(known, _)| known);
    Some(known.split(", ").map(str::to_owned).collect())
}

/// A setting that is in no document can only be guessed.
#[test]
fn every_setting_is_in_the_reference_and_the_reference_has_no_other() {
    let place = Place::empty();
    let mut settings = Vec::new();
    let mut sections = keys(&place, "").unwrap();
    while let Some(section) = sections.pop() {
        match keys(&place, &section) {
            Some(keys) => sections.extend(keys.iter().map(|key| format!("{section}.{key}"))),
            None => settings.push(section),
        }
    }
    // Described once for all topics, and for both kinds of it.
    for whole in ["kafka.topic_defaults", "relay.retry.backoff"] {
        settings.retain(|setting| !setting.starts_with(whole));
        settings.push(whole.to_owned());
    }
    settings.sort_unstable();
    assert!(settings.len() > 60, "{settings:?}");
    let reference = include_str!("../../../../docs/configuration.md");
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    let mut described: Vec<String> = reference.lines().filter_map(row).collect();
    described.sort_unstable();
    assert_eq!(described, settings);
}

#[test]
fn a_bad_value_is_named_with_its_line() {
    refused(
        "# ours\n[log]\nlevel = 'info'\n\n[relay]\nlease = '30s'\nbatch_size = 'many'\n",
        &[
            "relay.batch_size = \"many\": write a whole number",
            "(in posthaste.toml, line 7)",
        ],
    );
    refused(
        "[relay]\nlease = '1ms'\n",
        &["relay.lease", "(in posthaste.toml, line 2)"],
    );
}

/// Whoever sets the one may not have heard of the other.
#[test]
fn a_window_that_was_not_set_is_said_to_be_so_when_a_batch_does_not_fit() {
    let place = Place::with_sqlite();
    let check = |more: &[&str]| place.run(&[&["run", "--check", "--set", "relay.batch_size=4000"], more].concat());
    check(&[]).fails_with(&["relay.max_in_flight = 2000", "batch_size = 4000", "set it as well"]);
    let set = check(&["--set", "relay.max_in_flight=3000"]);
    set.fails_with(&["relay.max_in_flight = 3000", "batch_size = 4000"]);
    assert!(!set.stderr.contains("set it as well"), "{set:?}");
}

#[test]
fn flags_make_the_log_louder_and_quieter() {
    let place = Place::with_sqlite().migrated();
    let lines = |flags: &[&str]| {
        place.enqueue(&["--topic", "a", "--payload", "1"]);
        let args = [&["run", "--drain"], &TO_STDOUT[..], flags].concat();
        place.run(&args).success().stderr
    };
    let plain = lines(&[]);
    assert!(plain.contains(" INFO ") && !plain.contains("DEBUG"), "{plain}");
    for quiet in ["-q", "--quiet"] {
        assert_eq!(lines(&[quiet]), "");
    }
    let unavailable = [
        "--set",
        "publisher.kind=http",
        "--set",
        "publisher.url=http://127.0.0.1:1/x",
    ];
    let failing = |flag: &str| {
        place.enqueue(&["--topic", "a", "--payload", "1"]);
        place
            .run(&[&["run", "--drain", flag], &unavailable[..]].concat())
            .stderr
    };
    let debug = |line: &&str| line.contains(" DEBUG ");
    for verbose in ["-v", "--verbose"] {
        let log = failing(verbose);
        assert!(log.lines().filter(debug).count() > 0, "{log}");
        assert!(
            log.lines().filter(debug).all(|line| line.contains(" posthaste")),
            "{log}"
        );
    }
    let log = failing("-vv");
    assert!(log.lines().filter(debug).any(|line| line.contains(" sqlx")), "{log}");
    assert!(
        lines(&["-q", "--set", "log.level=info"]).contains(" INFO "),
        "a setting says it more exactly"
    );
    let both = place.run(&["status", "-q", "-v"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

/// A link to nothing, or a directory that a container's runtime made of a missing file.
#[cfg(unix)]
#[test]
fn a_file_that_is_there_but_cannot_be_read_is_not_passed_over() {
    let place = Place::empty();
    std::os::unix::fs::symlink("nowhere.toml", place.path("posthaste.toml")).unwrap();
    place
        .run(&["status"])
        .fails_with(&["posthaste.toml", "no file that can be read"]);
    std::fs::remove_file(place.path("posthaste.toml")).unwrap();
    std::fs::create_dir(place.path("posthaste.toml")).unwrap();
    place
        .run(&["status"])
        .fails_with(&["posthaste.toml", "no file that can be read"]);
}
