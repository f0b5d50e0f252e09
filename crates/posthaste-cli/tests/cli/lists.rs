//! Settings of several publishers and of routes: where they come from, and what is said about bad ones.

use crate::support::Place;

/// Two publishers, of which the second lacks its address, and the routes to them.
const TWO: &str = "\
[[publishers]]
name = 'archive'
kind = 'file'
path = 'archive.jsonl'

[[publishers]]
name = 'partner'
kind = 'http'

[[routes]]
topic = 'orders'
to = 'partner'

[[routes]]
to = 'archive'
";

fn with(lines: &str) -> Place {
    let place = Place::empty();
    place.write("posthaste.toml", lines);
    place
}

/// The message must have these parts, and the line of the file.
#[track_caller]
fn refused(lines: &str, line: usize, parts: &[&str]) {
    let line = format!("(in posthaste.toml, line {line})");
    with(lines).run(&["run"]).fails_with(&[parts, &[&line]].concat());
}

#[test]
fn a_key_of_one_publisher_or_route_comes_from_the_environment_or_a_flag() {
    let missing = with(TWO).run(&["run", "--check"]);
    missing.fails_with(&["publishers.1.url: is missing", "POSTHASTE_PUBLISHERS__1__URL=https://…"]);
    // Port 1 has no receiver: all settings were read once that is said.
    let away = "publisher partner: HTTP receiver 127.0.0.1:1: cannot be reached";
    let address = "http://127.0.0.1:1/x";
    let by_variable = with(TWO).set("PUBLISHERS__1__URL", address);
    by_variable.run(&["run", "--check"]).fails_with(&[away]);
    let flag = format!("publishers.1.url={address}");
    let by_flag = with(TWO)
        .set("PUBLISHERS__1__URL", "hush")
        .run(&["run", "--check", "--set", &flag]);
    by_flag.fails_with(&[away]);
    let other = by_variable.run(&["run", "--set", "routes.0.to=nobody"]);
    other.fails_with(&["routes.0.to = \"nobody\": no publisher has this name", "(in a flag)"]);
    let wrong = with(TWO).set("PUBLISHERS__1__URL", "hush").run(&["run"]);
    wrong.fails_with(&[
        "publishers.1.url = (hidden): not an address",
        "(in the environment variable POSTHASTE_PUBLISHERS__1__URL)",
    ]);
}

#[test]
fn a_number_that_no_element_has_is_refused_with_how_many_there_are() {
    let place = with(TWO).set("PUBLISHERS__2__URL", "http://127.0.0.1:1/x");
    place
        .run(&["run"])
        .fails_with(&["publishers.2: no element of the list publishers", "there are 2, 0 to 1"]);
    let named = with(TWO).run(&["run", "--set", "publishers.partner.url=http://h/"]);
    named.fails_with(&["publishers.partner: ", "there are 2, 0 to 1"]);
    let none = with("").run(&["run", "--set", "routes.0.to=a"]);
    none.fails_with(&["routes.0: ", "the file has none; write [[routes]]"]);
}

#[test]
fn a_bad_value_in_a_list_is_refused_with_its_value_and_line() {
    let publisher = |lines: &str| format!("[[publishers]]\nkind = 'log'\n[[publishers]]\n{lines}\n");
    refused(
        &publisher("kind = 'htpp'"),
        4,
        &["publishers.1.kind = \"htpp\": unknown value", "did you mean http?"],
    );
    refused(
        &publisher("kind = 'log'\npayload_limit = 'many'"),
        5,
        &["publishers.1.payload_limit = \"many\": write a whole number"],
    );
    refused(
        &publisher("kind = 'log'\nlevl = 'info'"),
        5,
        &["publishers.1.levl: unknown key"],
    );
    refused(
        &publisher("kind = 'log'"),
        3,
        &["publishers.1.name = \"log\": there are two publishers called \"log\""],
    );
    refused(&publisher("kind = 'http'"), 3, &["publishers.1.url: is missing"]);
    refused(&publisher("kind = 'log'\nname = 5"), 5, &["publishers.1.name = 5: "]);
    let format = "kind = 'http'\nurl = 'https://h/'\nformat = 5";
    refused(&publisher(format), 6, &["publishers.1.format = 5: unknown value; use "]);
    let routes = TWO.replace("kind = 'http'", "kind = 'log'");
    refused(
        &routes.replace("'orders'", "5"),
        11,
        &["routes.0.topic = 5: write text"],
    );
    refused(
        &routes.replace("to = 'partner'", ""),
        10,
        &["routes.0.to: is missing; say where such messages go"],
    );
    refused(
        &routes.replace("to = 'partner'", "to = 'nobody'"),
        12,
        &["routes.0.to = \"nobody\": no publisher has this name; there are archive, partner"],
    );
}

#[test]
fn a_table_in_place_of_a_list_and_a_list_in_place_of_a_table_are_told_apart() {
    refused(
        "[[publishers]]\nkind = 'log'\n[routes]\nto = 'log'\n",
        3,
        &["is a list of tables; write [[routes]] above each"],
    );
    refused(
        "[[publisher]]\nkind = 'log'\n",
        1,
        &["[[publishers]] above each of several"],
    );
    refused(
        "[[routes]]\nto = 'log'\n",
        1,
        &["there is no publisher that they could name"],
    );
    with("")
        .run(&["run", "--set", "relay.ordering.topics.a.b=block"])
        .fails_with(&["relay.ordering.topics.a = ", "--set: relay.ordering.topics.\"a.b\""]);
    let quoted = with("").run(&["status", "--set", "relay.ordering.topics.\"a.b\"=block"]);
    assert!(!quoted.stderr.contains("relay.ordering"), "{quoted:?}");
}

#[test]
fn a_route_behind_one_that_takes_all_its_messages_is_refused() {
    let routes = TWO.replace("kind = 'http'", "kind = 'log'");
    let shadowed = "[[routes]]\ntopic = 'orders'\ntenant = 'acme'\nto = 'archive'\n\n[[routes]]\nto = 'archive'";
    refused(
        &routes.replace("[[routes]]\nto = 'archive'", shadowed),
        17,
        &["routes.1.to = \"archive\": is never reached: routes.0 is for all its messages"],
    );
}

#[test]
fn the_check_names_every_publisher_that_fails_and_says_what_was_found_before() {
    let two = TWO.replace(
        "kind = 'file'\npath = 'archive.jsonl'",
        "kind = 'http'\nurl = 'http://127.0.0.1:1/a'",
    );
    let place = with(&two).set("PUBLISHERS__1__URL", "http://127.0.0.1:1/b");
    let ran = place.run(&["run", "--check"]);
    ran.fails_with(&["publisher archive: HTTP receiver", "publisher partner: HTTP receiver"]);
    assert!(
        ran.stdout.contains("settings   ok") && ran.stdout.contains("outbox  "),
        "{ran:?}"
    );
}
