use std::fs;
use std::io::Write as _;
use std::path::Path;

use chrono::Utc;
use posthaste_core::integrity::ContentHash;
use posthaste_core::store::DeadLetter;
use posthaste_core::{Message, MessageId};
use tempfile::TempDir;

use super::{Letter, Line, Mark, Spool, SpoolConfig, SpoolError};

struct Place {
    directory: TempDir,
    spool: Spool,
}

fn place(adjust: impl FnOnce(&mut SpoolConfig)) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let mut config = SpoolConfig::new(directory.path().join("spool.jsonl"));
    adjust(&mut config);
    Place {
        spool: Spool::new(config),
        directory,
    }
}

fn dead(message: Message) -> DeadLetter {
    DeadLetter {
        hash: Some(ContentHash::of_message(&message)),
        message,
        attempts: 3,
        error: "too large\nfor \"this\"".to_owned(),
        created_at: Utc::now(),
        died_at: Utc::now(),
    }
}

fn letter(number: i64) -> Line {
    let mut message = Message::new("orders", r#"{"n": 1}"#);
    message.id = MessageId::Number(number);
    Line::Letter(Box::new(Letter::new("default", &dead(message))))
}

fn mark(number: i64) -> Mark {
    Mark {
        namespace: "default".to_owned(),
        id: number.to_string(),
    }
}

fn open(spool: &Spool) -> Vec<String> {
    let contents = spool.read().unwrap();
    let ids = contents.open.iter().map(|open| open.letter().unwrap().id);
    ids.collect()
}

fn append(spool: &Spool, lines: &[Line]) {
    let (written, outcome) = spool.append(lines);
    outcome.unwrap();
    assert_eq!(written, lines.len());
}

fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Proves D7.
#[test]
fn a_letter_survives_with_every_byte_and_its_hash() {
    let texts = [
        Message::new("orders", r#"{ "a" : 1 }"#).key("42").header("h", "\u{1}é"),
        Message::new("orders", vec![0, 255, 10, 13]).content_type("application/octet-stream"),
        Message::new("orders", "")
            .tenant("acme")
            .dedupe_key("acme/1")
            .event_type("a.b.c.v1"),
    ];
    for mut message in texts {
        for id in [
            MessageId::new(),
            MessageId::Number(7),
            MessageId::text("7"),
            MessageId::text("a b"),
        ] {
            message.id = id;
            message.namespace = Some("shop".into());
            let mut letter = dead(message.clone());
            // One that it died of.
            letter.hash = Some(ContentHash::of(&[b"another"]));
            let line = serde_json::to_string(&Line::Letter(Box::new(Letter::new("shop", &letter)))).unwrap();
            assert!(!line.contains('\n'), "{line}");
            let Line::Letter(read) = serde_json::from_str(&line).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(read.dead_letter(), Some(letter));
        }
    }
}

#[test]
fn a_letter_is_open_until_it_is_settled_or_imported() {
    let Place { spool, directory } = place(|_| {});
    assert_eq!(open(&spool), [""; 0]);
    append(&spool, &[letter(1), letter(2), letter(3)]);
    append(&spool, &[Line::Settled(mark(2)), letter(4), Line::Imported(mark(1))]);
    assert_eq!(open(&spool), ["3", "4"]);
    // The same message may die again, and a letter that was written twice is one.
    append(&spool, &[letter(2), letter(3)]);
    assert_eq!(open(&spool), ["4", "2", "3"]);
    assert_eq!(files(directory.path()), ["spool.jsonl", "spool.jsonl.lock"]);
}

#[test]
fn what_was_thrown_away_is_marked_and_a_spool_that_was_never_written_stays_so() {
    let Place { spool, directory } = place(|_| {});
    assert_eq!(spool.settle(|_| true).unwrap(), 0);
    assert_eq!(files(directory.path()), [""; 0]);
    append(&spool, &[letter(1), letter(2), letter(3)]);
    assert_eq!(spool.settle(|mark| mark.id != "2").unwrap(), 2);
    assert_eq!(spool.settle(|mark| mark.id != "2").unwrap(), 0);
    assert_eq!(open(&spool), ["2"]);
}

/// Proves D7.
#[test]
fn a_torn_line_is_no_letter_and_does_not_damage_the_next_one() {
    let Place {
        spool,
        directory: _kept,
    } = place(|_| {});
    append(&spool, &[letter(1)]);
    let whole = serde_json::to_vec(&letter(2)).unwrap();
    for cut in [1, 20, whole.len() - 1] {
        let mut file = fs::OpenOptions::new().append(true).open(spool.file()).unwrap();
        file.write_all(&whole[..cut]).unwrap();
        append(&spool, &[letter(10 + i64::try_from(cut).unwrap())]);
    }
    let contents = spool.read().unwrap();
    assert_eq!((contents.torn, contents.open.len()), (3, 4));
    assert!(!open(&spool).contains(&"2".to_owned()));
}

/// Proves D7.
#[test]
fn a_file_with_a_line_that_cannot_be_read_is_never_removed() {
    let text = |number| serde_json::to_string(&letter(number)).unwrap();
    let changed = text(2).replace(r#""attempts":3"#, r#""attempts":"3""#);
    assert_ne!(changed, text(2));
    let newer = r#"{"parcel":{"id":"2"}}"#.to_owned();
    for (odd, stays) in [
        (changed, true),
        (newer, true),
        ("\0\0".to_owned(), true),
        (text(2)[..99].to_owned(), false),
    ] {
        let Place { spool, directory } = place(|_| {});
        let aside = directory.path().join("spool.jsonl.1");
        fs::write(&aside, format!("{}\n{odd}\n{}\n", text(1), text(3))).unwrap();
        append(&spool, &[Line::Imported(mark(1)), Line::Imported(mark(3))]);
        let contents = spool.read().unwrap();
        let found = contents
            .unreadable
            .first()
            .map(|found| (found.file.clone(), found.first, found.lines));
        assert_eq!(found, stays.then(|| (aside.clone(), 2, 1)), "{odd}");
        assert_eq!(contents.torn, u64::from(!stays), "{odd}");
        spool.remove_settled().unwrap();
        assert_eq!(aside.exists(), stays, "{odd}");
    }
}

#[test]
fn a_file_that_has_grown_is_set_aside_and_read_all_the_same() {
    let Place { spool, directory } = place(|config| config.rotate_bytes = 1_000);
    for number in 1..=20 {
        append(&spool, &[letter(number)]);
    }
    let names = files(directory.path());
    assert!(
        names.len() > 4 && names.contains(&"spool.jsonl.1".to_owned()),
        "{names:?}"
    );
    let numbers: Vec<_> = (1..=20).map(|number| number.to_string()).collect();
    assert_eq!(open(&spool), numbers, "in the order in which they came");

    // What is settled makes room, from the oldest on.
    let settled: Vec<_> = (1..=20)
        .filter(|number| *number != 8)
        .map(mark)
        .map(Line::Settled)
        .collect();
    append(&spool, &settled);
    spool.remove_settled().unwrap();
    assert_eq!(open(&spool), ["8"]);
    let left = files(directory.path());
    assert!(
        !left.contains(&"spool.jsonl.1".to_owned()) && left.len() < names.len(),
        "{left:?}"
    );
    append(&spool, &[Line::Imported(mark(8))]);
    spool.remove_settled().unwrap();
    assert_eq!(open(&spool), [""; 0]);
    assert_eq!(files(directory.path()), ["spool.jsonl", "spool.jsonl.lock"]);
}

/// Proves D7.
#[test]
fn a_full_spool_takes_what_fits_and_throws_nothing_away() {
    let Place {
        spool,
        directory: _kept,
    } = place(|config| config.max_bytes = 1_000);
    let letters: Vec<_> = (1..=20).map(letter).collect();
    let (written, outcome) = spool.append(&letters);
    assert!(matches!(outcome, Err(SpoolError::Full { .. })), "{outcome:?}");
    assert!((1..20).contains(&written), "{written}");
    assert_eq!(open(&spool).len(), written);
    assert!(spool.append(&letters[19..]).1.is_err());
    // That a letter is no longer needed can be said all the same.
    append(&spool, &[Line::Settled(mark(1))]);
    assert_eq!(open(&spool).len(), written - 1);
}

#[test]
fn two_that_write_at_once_damage_no_line() {
    let Place {
        spool,
        directory: _kept,
    } = place(|config| config.rotate_bytes = 5_000);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let spool = spool.clone();
            scope.spawn(move || (0..50).for_each(|number| append(&spool, &[letter(writer * 100 + number)])));
        }
    });
    let contents = spool.read().unwrap();
    assert_eq!((contents.torn, contents.open.len()), (0, 200));
}

#[test]
fn what_cannot_be_written_is_an_error_that_names_the_file() {
    // A directory stands where the file should be.
    let Place { directory, .. } = place(|_| {});
    let spool = Spool::new(SpoolConfig::new(directory.path()));
    let error = spool.check().unwrap_err().to_string();
    assert!(error.contains(&directory.path().display().to_string()), "{error}");
    assert_eq!(spool.append(&[letter(1)]).0, 0);
    let spool = Spool::new(SpoolConfig::new("/dev/full"));
    assert_eq!(spool.append(&[letter(1)]).0, 0);
}

#[test]
fn a_directory_that_is_missing_is_an_error_that_names_it_and_the_setting() {
    let Place { directory, .. } = place(|_| {});
    let missing = directory.path().join("missing");
    let spool = Spool::new(SpoolConfig::new(missing.join("spool.jsonl")));
    let error = spool.check().unwrap_err().to_string();
    let start = format!("{}: there is no such directory", missing.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(error.contains("safety_net.file"), "{error}");
    assert_eq!(spool.append(&[letter(1)]).0, 0);
    assert!(spool.read().unwrap().open.is_empty());
}

#[cfg(unix)]
#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let Place { spool, directory } = place(|_| {});
    append(&spool, &[letter(1)]);
    for name in files(directory.path()) {
        let mode = fs::metadata(directory.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
