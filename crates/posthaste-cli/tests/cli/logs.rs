//! What is in a log, and what is not.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::probes::{free_port, get};
use crate::support::{Place, eventually};

const SINK_BYTES: u64 = 8 << 20;

/// Proves C17.
#[test]
fn a_full_disk_is_told_once_and_not_for_each_message_and_attempt() {
    let place = Place::with_sqlite().migrated();
    for _ in 0..30 {
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
    }
    let port = free_port();
    // No process may make a file longer than the sink is already.
    let mut sink = fs::File::create(place.path("sink.jsonl")).unwrap();
    sink.set_len(SINK_BYTES - 1).unwrap();
    sink.seek(SeekFrom::End(0)).unwrap();
    sink.write_all(b"\n").unwrap();
    let args = [
        "run",
        "--set",
        "publisher.kind=file",
        "--set",
        "publisher.path=sink.jsonl",
        "--set",
        "relay.retry={max_attempts=1000,backoff={kind=\"schedule\",delays=[\"20ms\"]}}",
        // It is what is told of messages that is looked at here.
        "--set",
        "relay.breaker={minimum_calls=1000,window=1000}",
        "--set",
        &format!("metrics.listen=127.0.0.1:{port}"),
    ];
    let mut relay = place.start_command(place.command_with_file_size(SINK_BYTES, &args));
    let failures = || {
        let (_, figures) = get(port, "/metrics")?;
        let line = figures.lines().find(|line| line.starts_with("outbox_failure_count{"))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    eventually("messages were tried repeatedly", || {
        failures().is_some_and(|count| count > 100)
    });
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
    let log = place.read("log");
    assert_eq!(log.matches("will be tried again").count(), 1, "{log}");
    assert_eq!(log.matches("more attempts failed in the same way").count(), 1, "{log}");
    assert!(log.contains("orders") && log.contains("File too large"), "{log}");
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The arguments of each call of a macro of `tracing`, with the number of its line.
fn log_lines(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for level in ["trace", "debug", "info", "warn", "error"] {
        let name = format!("tracing::{level}!(");
        for (start, _) in text.match_indices(&name) {
            let rest = &text[start + name.len()..];
            let mut depth = 1;
            let end = rest.find(|character| {
                depth += i32::from(character == '(') - i32::from(character == ')');
                depth == 0
            });
            found.push((text[..start].lines().count() + 1, &rest[..end.unwrap()]));
        }
    }
    found
}

/// Whether a value is written as Rust would: `?value`, `field = ?value` or `{value:?}`.
fn has_debug(arguments: &str) -> bool {
    let field = |(at, _): (usize, &str)| {
        let before = arguments[..at].trim_end();
        let named = before.is_empty() || before.ends_with(',') || before.ends_with('=');
        named && arguments[at + 1..].starts_with(|next: char| next.is_alphabetic() || next == '_')
    };
    arguments.match_indices('?').any(field) || arguments.contains(":?}") || arguments.contains(":#?}")
}

/// `Some("x")` and `StoreErrorKind::Unavailable` are for those who wrote the program, not for those who run it.
#[test]
fn no_log_line_shows_a_value_as_rust_writes_it() {
    assert!(has_debug("?took, \"slow\"") && has_debug("id, kind = ?kind, \"x\"") && has_debug("\"{x:?}\""));
    assert!(!has_debug("%error, \"really? {}\", read()?"));
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut lines = 0;
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, arguments) in log_lines(&text) {
            lines += 1;
            if has_debug(arguments) {
                wrong.push(format!("{}:{number}: {}", file.display(), arguments.trim()));
            }
        }
    }
    assert!(lines > 100, "the sources were not understood: {lines}");
    assert!(
        wrong.is_empty(),
        "use Display, `Readable` for durations:\n{}",
        wrong.join("\n")
    );
}
