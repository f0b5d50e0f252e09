//! Letters of an outbox whose messages are in the log, by commands with the settings of its queue.

use crate::safety_net::{Receiver, dead, import, letter, lines, spooled, start};
use crate::support::{Place, eventually};

/// Nothing may change in the queue or in the file.
#[track_caller]
fn is_refused(place: &Place, found: &str) {
    let before = place.status();
    let dry = &["spool", "import", "--dry-run"][..];
    for command in [&["spool", "import"][..], dry] {
        let ran = place.run(command);
        ran.fails_with(&[
            "letters are not imported into this queue",
            found,
            "database.layout = \"log\"",
        ]);
        assert_eq!(ran.stdout, "");
    }
    let status = place.status();
    for count in ["/dead", "/pending", "/log/dead", "/log/pending"] {
        assert_eq!(status.pointer(count), before.pointer(count), "{count}");
    }
    assert_eq!((&status["spooled"], spooled(place).len()), (&1.into(), 1));
}

/// A message of a log that dies is another row, so its letter is known by its event. Proves D7.
#[test]
fn a_death_that_the_table_of_a_log_refuses_is_in_the_file_until_the_table_takes_it() {
    const REFUSE: &str = "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no deaths today'; end $$;
         create trigger refuse before insert or update on log_failed for each row when (new.died_at is not null) execute function refuse()";
    let Some(place) = Place::with_postgres() else { return };
    let receiver = Receiver::answering("422 Unprocessable Content");
    let place = place
        .set("DATABASE__LAYOUT", "log")
        .set("PUBLISHER__KIND", "http")
        .set("PUBLISHER__URL", &receiver.url)
        .set("RELAY__POLL_INTERVAL", "50ms")
        .set("SAFETY_NET__FILE", "./dead.jsonl")
        .migrated();
    place.sql(REFUSE);
    let id = place.enqueue(&["--topic", "orders", "--key", "42", "--payload", "{}"]);
    // It starts all the same, because there is another place for them.
    let relay = start(&place);
    eventually("the letter is in the file", || spooled(&place).len() == 1);
    assert_eq!((&spooled(&place)[0]["id"], dead(&place)), (&id.into(), 0));
    place.sql("drop trigger refuse on log_failed");
    eventually("the table has it", || dead(&place) == 1);
    eventually("the file needs it no more", || spooled(&place).is_empty());
    drop(relay);
    assert_eq!(import(&place, &[])["imported"], 0);
}

/// On SQLite a move leaves no trace in the queue.
#[test]
fn a_letter_of_a_queue_that_was_moved_does_not_come_back_in_it() {
    for place in [Some(Place::with_sqlite()), Place::with_postgres()]
        .into_iter()
        .flatten()
    {
        let place = place.set("SAFETY_NET__FILE", "./dead.jsonl").migrated();
        let letters = lines(&[letter(1, |_| {})]);
        place.write("dead.jsonl", &letters);
        assert_eq!((&import(&place, &[])["imported"], dead(&place)), (&1.into(), 1));
        // As another machine has it.
        place.write("dead.jsonl", &letters);
        place.run(&["log", "move"]).success();
        is_refused(&place, "1 dead message is in the log");

        let place = place.set("DATABASE__LAYOUT", "log");
        assert_eq!(import(&place, &[])["there"], 1);
        assert_eq!((spooled(&place).len(), dead(&place)), (0, 1));
    }
}

#[test]
fn a_letter_of_a_message_in_the_log_is_not_imported_into_the_queue_beside_it() {
    for place in [Some(Place::with_sqlite()), Place::with_postgres()]
        .into_iter()
        .flatten()
    {
        let place = place.set("SAFETY_NET__FILE", "./dead.jsonl");
        let place = place.set("DATABASE__LAYOUT", "log").migrated();
        let id = place.enqueue(&["--topic", "orders", "--payload", "{}"]);
        place.write("dead.jsonl", &lines(&[letter(1, |letter| letter["id"] = id.into())]));
        let place = place.set("DATABASE__LAYOUT", "queue");
        is_refused(&place, "1 message waits in the log");

        let place = place.set("DATABASE__LAYOUT", "log");
        assert_eq!(import(&place, &[])["waiting"], 1);
        assert_eq!((spooled(&place).len(), dead(&place)), (1, 0));
    }
}
