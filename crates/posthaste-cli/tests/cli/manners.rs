//! How the command behaves in a shell: on terminals, in pipes, in the wrong directory, and in its help.

use std::fs::File;
use std::io::Read;

use nix::pty::openpty;

use crate::support::{Background, DRAIN, Place, Ran, TO_STDOUT};

/// Clears the screen, then forges a line.
const HOSTILE: &str = "\x1b[2J\x1b[Hall is well\r\u{9b}31m";

#[track_caller]
fn assert_harmless(text: &str) {
    assert!(text.contains("all is well"), "{text:?}");
    let obeyed = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(obeyed), "{text:?}");
}

#[test]
fn what_a_producer_wrote_cannot_control_the_operators_terminal() {
    let place = Place::with_sqlite().migrated();
    place.enqueue(&["--topic", HOSTILE, "--key", HOSTILE, "--payload", "1"]);
    let logged = ["run", "--drain", "--set", "publisher.kind=log"];
    assert_harmless(&place.run(&logged).success().stderr);

    place.enqueue(&["--topic", HOSTILE, "--key", HOSTILE, "--payload", "1"]);
    let failing = [
        "--set",
        "publisher.url=http://127.0.0.1:1/x",
        "--set",
        "relay.retry.max_attempts=1",
        "--set",
        "relay.breaker.enabled=false",
    ];
    let died = place.run(&[&["run", "--drain", "--set", "publisher.kind=http"], &failing[..]].concat());
    assert_harmless(&died.stderr);
    assert_harmless(&place.run(&["dead", "list"]).success().stdout);
    assert_harmless(&place.run(&["status", "--namespace", HOSTILE]).success().stdout);
    let refused = place.run(&["enqueue", "--topic", "a", "--payload", "1", "--type", HOSTILE]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_harmless(&refused.stderr);
}

/// What a command writes to a terminal as its standard error.
fn on_a_terminal(place: &Place, args: &[&str], variables: &[(&str, &str)]) -> String {
    let pty = openpty(None, None).unwrap();
    let mut command = place.command(args);
    command
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR")
        .env_remove("CI")
        .env_remove("CLICOLOR_FORCE");
    command.env("TERM", "xterm").envs(variables.iter().copied());
    let mut process = Background::of(
        command
            .stdout(std::process::Stdio::null())
            .stderr(pty.slave)
            .spawn()
            .unwrap(),
    );
    drop(command);
    process.exit_code();
    let mut terminal = File::from(pty.master);
    let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
    // A terminal whose other side is closed ends with an error.
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        text.extend_from_slice(&bytes[..count]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = Place::empty();
    let failing = [
        "run",
        "--drain",
        "--set",
        "database.url=sqlite://none.db",
        "--set",
        "publisher.kind=stdout",
    ];
    let logging = ["run", "--drain"];
    for args in [&failing[..], &logging] {
        let coloured = on_a_terminal(&place, args, &[]);
        assert!(coloured.contains("\x1b["), "{coloured:?}");
        for variables in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let plain = on_a_terminal(&place, args, &[variables]);
            assert!(!plain.is_empty() && !plain.contains('\x1b'), "{variables:?}: {plain:?}");
        }
        assert!(!place.run(args).stderr.contains('\x1b'), "no terminal, no colours");
    }
}

#[test]
fn looking_never_creates_an_outbox() {
    let place = Place::empty();
    for args in [
        &["status"][..],
        &["dead", "list"],
        &["dead", "replay", "--all"],
        &["dead", "discard", "--all", "--yes"],
        &["dead", "show", "0192f0c1-7e3a-7c55-9d0e-3f6a1b2c4d5e"],
        &["purge", "--older-than", "0s"],
    ] {
        place.run(args).fails_with(&[
            "there is no outbox here",
            "there is no file posthaste.db",
            "database.url",
            "`posthaste migrate up`",
        ]);
    }
    assert!(!place.path("posthaste.db").exists());
    // A file of somebody else's is not an outbox either.
    place.write("posthaste.db", "");
    place
        .run(&["status"])
        .fails_with(&["there are no outbox tables", "`posthaste migrate up`"]);
    assert_eq!(place.read("posthaste.db"), "");
}

#[test]
fn a_hint_keeps_its_example_and_a_value_loses_its_password() {
    let place = Place::empty();
    place.run(&["status", "--database-url", "foo"]).fails_with(&[
        "database.url = \"foo\"",
        "postgres://user:password@host/database, mysql://user:password@host/database or sqlite://file.db",
    ]);
    let ran = place.run(&["status", "--database-url", "oracle://ann:hush@db/shop"]);
    ran.fails_with(&["oracle://ann:***@db/shop", "mysql://user:password@host/database"]);
    assert!(!ran.stderr.contains("hush"), "{ran:?}");
}

/// The command and all its subcommands.
fn all_commands(place: &Place) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut next = 0;
    while let Some(command) = all.get(next).cloned() {
        let help = help(place, &command, 100);
        let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            let name = line.split_whitespace().next().unwrap();
            if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
                all.push([&command[..], &[name.to_owned()]].concat());
            }
        }
        next += 1;
    }
    assert!(all.len() > 15, "{all:?}");
    all
}

fn help(place: &Place, command: &[String], columns: u16) -> String {
    let args: Vec<_> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let mut command = place.command(&args);
    Ran::of(command.env("COLUMNS", columns.to_string()), "")
        .success()
        .stdout
}

/// Text that was broken by hand is broken again by a narrower terminal, and leaves short lines in the middle.
#[test]
fn help_is_wrapped_to_the_terminal_and_nowhere_else() {
    let place = Place::empty();
    for command in all_commands(&place) {
        for columns in [80, 100] {
            let help = help(&place, &command, columns);
            let lines: Vec<_> = help.lines().collect();
            for pair in lines.windows(2) {
                let [line, next] = pair else { unreachable!() };
                let is_prose = |line: &str| !line.starts_with(' ') && !line.ends_with(':') && !line.is_empty();
                let word = next.split(' ').next().unwrap();
                if is_prose(line) && is_prose(next) {
                    let (length, word) = (line.chars().count(), word.chars().count());
                    assert!(
                        length + 1 + word > usize::from(columns),
                        "{command:?} at {columns}: {line:?}\n{help}"
                    );
                }
            }
        }
        let help = help(&place, &command, 100);
        let bare =
            |line: &str| line.starts_with("  ") && line.trim().starts_with(['<', '[']) && !line.trim().contains(' ');
        for pair in help.lines().collect::<Vec<_>>().windows(2) {
            assert!(
                !bare(pair[0]) || !pair[1].trim().is_empty(),
                "{command:?}: {} is not described",
                pair[0]
            );
        }
    }
}

#[test]
fn completions_offer_no_hidden_command() {
    let place = Place::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]).success().stdout;
        assert!(script.contains("enqueue") && !script.contains("demo-relay"), "{shell}");
        assert!(
            script.contains("--database-url") || script.contains("database-url"),
            "{shell}"
        );
    }
}

#[test]
fn results_can_be_had_as_json() {
    let place = Place::with_sqlite();
    let steps = |place: &Place| -> Vec<serde_json::Value> {
        let ran = place.run(&["migrate", "status", "--json"]).success();
        ran.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    assert!(steps(&place).iter().all(|step| step["applied"] == false));
    let place = place.migrated();
    let found = steps(&place);
    assert_eq!((&found[0]["version"], &found[0]["applied"]), (&1.into(), &true.into()));
    let check = [&["run", "--check", "--json"], &TO_STDOUT[..]].concat();
    let checked = place.run(&check).success().json();
    assert_eq!(
        (&checked["publisher"], &checked["product"]),
        (&"stdout".into(), &"SQLite".into())
    );
    assert_eq!(checked["metrics"], serde_json::Value::Null);
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    place.run(&DRAIN).success();
    let purge = ["purge", "--older-than", "0s", "--yes", "--json"];
    assert_eq!(place.run(&purge).success().json()["removed"], 1);
}
