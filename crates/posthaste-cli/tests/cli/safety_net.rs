//! Dead letters while the table, the file, or both refuse them: each is in exactly one place that an operator can see.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde_json::Value;
use uuid::Uuid;

use crate::support::{Background, Place, eventually};

/// A receiver of alerts, or of messages.
pub struct Receiver {
    pub url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    fn start() -> Self {
        Self::answering("204 No Content")
    }

    pub fn answering(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hooks/very-secret", listener.local_addr().unwrap());
        let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
        let received = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let (mut request, mut piece) = (Vec::new(), [0; 4096]);
                loop {
                    let text = String::from_utf8_lossy(&request).into_owned();
                    if let Some((head, body)) = text.split_once("\r\n\r\n") {
                        let length = head.lines().find_map(|line| {
                            let (name, value) = line.split_once(": ")?;
                            name.eq_ignore_ascii_case("content-length")
                                .then(|| value.parse().unwrap())
                        });
                        if body.len() >= length.unwrap_or(0) {
                            if let Ok(body) = serde_json::from_str(body) {
                                received.lock().unwrap().push(body);
                            }
                            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                            let _ = stream.write_all(answer.as_bytes());
                            break;
                        }
                    }
                    match stream.read(&mut piece) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => request.extend_from_slice(&piece[..read]),
                    }
                }
            }
        });
        Self { url, bodies }
    }

    fn alerts(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().clone()
    }
}

/// A disk of its own, so small that it can be filled.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&at)
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("NOT TESTED: a full disk, because this user may not mount one");
            return None;
        }
        Some(Self(at))
    }

    fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[0; 512]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// How a database's outbox is broken and mended.
struct Table {
    /// Its name.
    outbox: &'static str,
    /// The table refuses deaths.
    refuse: String,
    /// It takes them again.
    take: String,
    /// Makes waiting messages of the topic `bad` due, with bytes that do not match their hash.
    corrupt: String,
}

fn native(outbox: &'static str, refuse: &str, take: &str, concat: &str) -> Table {
    Table {
        outbox,
        refuse: refuse.to_owned(),
        take: take.to_owned(),
        corrupt: format!(
            "update {outbox} set payload = {concat}, next_attempt_at = created_at
             where topic = 'bad' and status = 'pending' and next_attempt_at > created_at"
        ),
    }
}

fn postgres() -> Table {
    native(
        "outbox",
        "create function refuse() returns trigger language plpgsql as $$ begin
            if new.status = 'dead' then raise exception 'no dead letters today'; end if; return new; end $$;
         create trigger refuse before update on outbox for each row execute function refuse()",
        "drop trigger refuse on outbox; drop function refuse()",
        "payload || '\\x20'::bytea",
    )
}

fn sqlite() -> Table {
    native(
        "posthaste_outbox",
        "create trigger refuse before update on posthaste_outbox when new.status = 'dead'
         begin select raise(abort, 'no dead letters today'); end",
        "drop trigger refuse",
        "cast(cast(payload as text) || ' ' as blob)",
    )
}

fn mariadb() -> Table {
    native(
        "posthaste_outbox",
        "create trigger refuse before update on posthaste_outbox for each row
         if new.status = 'dead' then signal sqlstate '45000' set message_text = 'no dead letters today'; end if",
        "drop trigger refuse",
        "concat(payload, ' ')",
    )
}

const LETTERS: usize = 500;

fn enqueue(place: &Place, topic: &str, count: usize, later: bool) {
    let mut lines = String::new();
    for n in 0..count {
        let due = if later {
            r#", "not_before": "2099-01-01T00:00:00Z""#
        } else {
            ""
        };
        writeln!(lines, r#"{{"topic": "{topic}", "payload": {{"n": {n}}}{due}}}"#).unwrap();
    }
    place
        .run_with_input(&["enqueue", "--stdin", "--quiet"], &lines)
        .success();
}

pub fn spooled(place: &Place) -> Vec<Value> {
    let listed = place.run(&["spool", "list", "--json", "--limit", "5000"]).success();
    listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// All that is in the spool, those files included that were set aside.
fn copy_spool(place: &Place, to: &str) {
    let aside = (1..).map(|number| place.path(&format!("spool/dead.jsonl.{number}")));
    let aside = aside.take_while(|path| path.exists());
    let files = aside.chain([place.path("spool/dead.jsonl")]);
    let lines: Vec<u8> = files.flat_map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::write(place.path(to), lines).unwrap();
}

pub fn dead(place: &Place) -> u64 {
    place.status()["dead"].as_u64().unwrap()
}

pub fn import(place: &Place, args: &[&str]) -> Value {
    place
        .run(&[&["spool", "import", "--json"], args].concat())
        .success()
        .json()
}

pub fn start(place: &Place) -> Background {
    let relay = place.start(&["run"]);
    eventually("the relay runs", || place.read("log").contains("relay started"));
    relay
}

/// The settings with which dead letters go to `spool/dead.jsonl` and alerts to the receiver.
fn with_net(place: Place, receiver: &Receiver) -> Place {
    place
        .set("PUBLISHER__KIND", "file")
        .set("PUBLISHER__PATH", "./events.jsonl")
        .set("RELAY__LEASE", "3s")
        .set("RELAY__POLL_INTERVAL", "50ms")
        .set("RELAY__JANITOR_INTERVAL", "1s")
        .set("SAFETY_NET__FILE", "./spool/dead.jsonl")
        .set("SAFETY_NET__ROTATE_BYTES", "100000")
        .set("SAFETY_NET__ALERT__URL", &receiver.url)
}

/// How many different events were published, all of which are good.
fn delivered(place: &Place) -> usize {
    let events = place.read("events.jsonl");
    // The last line may be on its way.
    let events = events
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ids: std::collections::HashSet<_> = events
        .map(|event| {
            assert!(!event.to_string().contains("\"bad\""), "{event}");
            event["id"].to_string()
        })
        .collect();
    ids.len()
}

/// The table refuses, then the disk is full as well, the relay is killed, and then everything works again.
fn no_letter_is_lost_and_none_is_there_twice(place: Place, table: &Table) {
    let receiver = Receiver::start();
    let place = with_net(place, &receiver).migrated();
    let Some(disk) = SmallDisk::mount(place.path("spool")) else {
        return;
    };
    enqueue(&place, "bad", LETTERS, true);
    let mut relay = start(&place);
    place.sql(&table.refuse);
    place.sql(&table.corrupt);
    enqueue(&place, "good", 20, false);
    eventually("the letters are in the file", || spooled(&place).len() == LETTERS);
    eventually("others are delivered", || delivered(&place) == 20);
    assert_eq!(dead(&place), 0, "{}", place.read("log"));
    copy_spool(&place, "copy.jsonl");

    disk.fill();
    enqueue(&place, "bad", LETTERS, true);
    place.sql(&table.corrupt);
    let of_net = |receiver: &Receiver| {
        let alerts = receiver.alerts().into_iter();
        let title = |alert: &Value| alert["embeds"][0]["title"].as_str().unwrap().to_owned();
        alerts
            .map(|alert| title(&alert))
            .filter(|title| title.contains("no place takes"))
            .collect::<Vec<_>>()
    };
    eventually("an operator is told", || !of_net(&receiver).is_empty());
    enqueue(&place, "good", 20, false);
    eventually("others are still delivered", || delivered(&place) == 40);
    relay.signal(Signal::SIGKILL);
    relay.exit_code();
    let told = of_net(&receiver);
    assert_eq!(told.len(), 1, "the same cause is told once: {told:?}");
    assert!(spooled(&place).len() <= LETTERS + 10);

    disk.free();
    let _relay = start(&place);
    eventually("a relay that starts meanwhile goes on with the file", || {
        spooled(&place).len() == 2 * LETTERS
    });
    place.sql(&table.take);
    eventually("the table has all of them", || dead(&place) == 2 * LETTERS as u64);
    eventually("the file has none", || spooled(&place).is_empty());
    assert_eq!(delivered(&place), 40, "nothing that is broken was published");
    assert!(!place.read("log").contains("very-secret"));
    let outcome = import(&place, &["copy.jsonl"]);
    assert_eq!((&outcome["imported"], &outcome["there"]), (&0.into(), &LETTERS.into()));
    assert_eq!(dead(&place), 2 * LETTERS as u64);

    let alerts = receiver.alerts();
    let integrity = alerts.iter().filter(|alert| {
        let title = alert["embeds"][0]["title"].as_str().unwrap();
        title.contains("do not match their hash")
    });
    // One of each run.
    assert_eq!(integrity.count(), 2, "{alerts:#?}");
    for alert in alerts {
        assert_eq!(alert["allowed_mentions"]["parse"], Value::Array(Vec::new()));
        assert_eq!(alert["username"], "Posthaste");
    }
}

/// The rows are gone; the file brings them back once, however often and by however many it is read.
fn letters_come_back_once(place: Place, table: &Table) {
    let receiver = Receiver::start();
    let place = with_net(place, &receiver).migrated();
    std::fs::create_dir(place.path("spool")).unwrap();
    enqueue(&place, "bad", 100, true);
    let mut relay = start(&place);
    place.sql(&table.refuse);
    place.sql(&table.corrupt);
    eventually("the letters are in the file", || spooled(&place).len() == 100);
    relay.signal(Signal::SIGKILL);
    relay.exit_code();
    let before = spooled(&place);
    place.sql(&table.take);
    place.sql(&format!("delete from {}", table.outbox));

    let predicted = import(&place, &["--dry-run"]);
    assert_eq!((&predicted["imported"], dead(&place)), (&100.into(), 0));
    for copy in ["copy.jsonl", "another.jsonl"] {
        copy_spool(&place, copy);
    }
    // One of them is killed somewhere in the middle.
    let mut killed = place.start(&["spool", "import"]);
    eventually("it has begun", || !killed.is_running() || dead(&place) > 0);
    killed.signal(Signal::SIGKILL);
    let outcomes = std::thread::scope(|scope| {
        let importing = ["spool/dead.jsonl", "copy.jsonl", "spool/dead.jsonl"];
        let importing = importing.map(|file| scope.spawn(|| import(&place, &[file])));
        importing.map(|one| one.join().unwrap())
    });
    assert_eq!(dead(&place), 100, "{outcomes:?}");
    assert_eq!(spooled(&place).len(), 0);
    let again = import(&place, &[]);
    assert_eq!((&again["imported"], &again["there"]), (&0.into(), &0.into()));

    // Under the same id, with the same bytes, and still with the hash that it died of.
    let listed = place.run(&["dead", "list", "--json", "--limit", "1000"]).success();
    let mut rows: Vec<Value> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    rows.sort_by_key(|row| row["id"].to_string());
    let mut letters = before;
    letters.sort_by_key(|letter| letter["id"].to_string());
    for (row, letter) in rows.iter().zip(&letters) {
        assert_eq!((&row["id"], &row["topic"]), (&letter["id"], &letter["topic"]));
        assert_eq!(row["last_error"], letter["error"]);
        assert_eq!(row["payload"], letter["payload"], "the space at its end included");
        assert_eq!(row["attempts"], letter["attempts"]);
    }

    // What was replayed is not brought back, nor what was delivered.
    let [first, second] = [0, 1].map(|place| rows[place]["id"].as_str().unwrap().to_owned());
    place.run(&["dead", "replay", &first]).success();
    place.sql(&format!(
        "update {} set status = 'delivered', delivered_at = created_at where id = '{second}'",
        table.outbox
    ));
    let outcome = import(&place, &["another.jsonl"]);
    assert_eq!((&outcome["imported"], &outcome["waiting"]), (&0.into(), &1.into()));
    assert_eq!(dead(&place), 98);
}

mod on_sqlite {
    /// Proves D7 and D3.
    #[test]
    fn no_letter_is_lost_and_none_is_there_twice() {
        super::no_letter_is_lost_and_none_is_there_twice(super::Place::with_sqlite(), &super::sqlite());
    }

    /// Proves D7.
    #[test]
    fn letters_come_back_once() {
        super::letters_come_back_once(super::Place::with_sqlite(), &super::sqlite());
    }
}

mod on_postgres {
    /// Proves D7 and D3.
    #[test]
    fn no_letter_is_lost_and_none_is_there_twice() {
        let Some(place) = super::Place::with_postgres() else {
            return;
        };
        super::no_letter_is_lost_and_none_is_there_twice(place, &super::postgres());
    }

    /// Proves D7.
    #[test]
    fn letters_come_back_once() {
        let Some(place) = super::Place::with_postgres() else {
            return;
        };
        super::letters_come_back_once(place, &super::postgres());
    }
}

mod on_mariadb {
    /// Proves D7 and D3.
    #[test]
    fn no_letter_is_lost_and_none_is_there_twice() {
        let Some(place) = super::Place::with_mariadb() else {
            return;
        };
        super::no_letter_is_lost_and_none_is_there_twice(place, &super::mariadb());
    }

    /// Proves D7.
    #[test]
    fn letters_come_back_once() {
        let Some(place) = super::Place::with_mariadb() else {
            return;
        };
        super::letters_come_back_once(place, &super::mariadb());
    }
}

fn count(place: &Place, of: &str) -> i64 {
    let url = place.setting("DATABASE__URL").unwrap().to_owned();
    let sql = format!("select count(*) from {of}");
    tokio::runtime::Runtime::new().unwrap().block_on(async move {
        use sqlx::{AssertSqlSafe, Connection};
        let mut conn = sqlx::MySqlConnection::connect(&url).await.unwrap();
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut conn)
            .await
            .unwrap()
    })
}

/// The seed's tables: the row ends as `DEAD_LETTER`, and its letter is in the file while the table of dead letters refuses it.
///
/// Proves D7.
#[test]
fn a_dead_letter_table_that_refuses_holds_up_nothing() {
    let Some(place) = Place::with_mariadb() else { return };
    place.sql(include_str!("../../../posthaste-sql/maps/donation.sql"));
    let owner = place.setting("DATABASE__URL").unwrap().to_owned();
    let (server, database) = owner.rsplit_once('/').unwrap();
    let user = format!("r{}", &Uuid::new_v4().simple().to_string()[..20]);
    place.sql(&format!(
        "create user {user}@'%' identified by 'pw'; grant select, insert, update on {database}.donation_outbox to {user}@'%';
         grant select, insert on {database}.donation_dlq to {user}@'%'"
    ));
    let receiver = Receiver::start();
    let place = with_net(place, &receiver)
        .set("DATABASE__MAP", "donation")
        .set("RELAY__MAX_POLL_INTERVAL", "50ms");
    std::fs::create_dir(place.path("spool")).unwrap();
    let host = server.split_once('@').unwrap().1;
    let relay_place = format!("mysql://{user}:pw@{host}/{database}");
    let mut command = place.command(&["run"]);
    command.env("POSTHASTE_DATABASE__URL", &relay_place);
    let mut relay = place.start_command(command);
    eventually("the relay runs", || place.read("log").contains("relay started"));
    place.sql(&format!("revoke insert on {database}.donation_dlq from {user}@'%'"));
    place.sql(
        "insert into donation_outbox (request_id, event_type, payload, content_hash, created_at, next_retry_at)
         select concat('r-', seq), 'DONATION_COMPLETED', '{\"a\": 1}', repeat('0', 64), utc_timestamp(), utc_timestamp()
         from seq_1_to_1000",
    );
    eventually("every row is dead", || {
        count(&place, "donation_outbox where status = 'DEAD_LETTER'") == 1_000
    });
    assert_eq!((spooled(&place).len(), count(&place, "donation_dlq")), (1_000, 0));
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
    let copy = Path::new("spool/dead.jsonl");
    for copy in ["copy.jsonl", "another.jsonl"] {
        copy_spool(&place, copy);
    }

    let outcome = import(&place, &[copy.to_str().unwrap()]);
    assert_eq!((&outcome["imported"], &outcome["there"]), (&1_000.into(), &0.into()));
    assert_eq!((spooled(&place).len(), count(&place, "donation_dlq")), (0, 1_000));
    import(&place, &["copy.jsonl"]);
    assert_eq!(count(&place, "donation_dlq"), 1_000);
    assert_eq!(
        count(
            &place,
            "(select distinct original_id from donation_dlq where reason like '%hash%') x"
        ),
        1_000
    );

    // A row that is gone comes back under its number.
    place.sql("delete from donation_outbox where id <= 3; delete from donation_dlq where original_id <= 3");
    let outcome = import(&place, &["another.jsonl"]);
    assert_eq!(outcome["imported"], 3);
    assert_eq!(
        count(&place, "donation_outbox where id <= 3 and status = 'DEAD_LETTER'"),
        3
    );
    assert_eq!(count(&place, "donation_dlq"), 1_000);
    place.sql(&format!("drop user {user}@'%'"));
}

pub fn lines(letters: &[Value]) -> String {
    letters.iter().map(|letter| letter.to_string() + "\n").collect()
}

/// Letters that the relay wrote, of rows that are gone, in a file that was set aside.
fn with_letters(letters: &[Value]) -> Place {
    let place = Place::with_sqlite().set("SAFETY_NET__FILE", "./dead.jsonl").migrated();
    place.write("dead.jsonl.1", &lines(letters));
    place.write("dead.jsonl", "");
    place
}

pub fn letter(number: u8, adjust: impl FnOnce(&mut Value)) -> Value {
    let mut letter = serde_json::json!({
        "namespace": "default", "id": format!("0199aaaa-bbbb-7ccc-8ddd-eeeeffff00{number:02}"), "topic": "orders",
        "content_type": "application/json", "headers": {}, "payload": "{}", "attempts": 1, "error": "422",
        "created_at": "2026-01-01T00:00:00Z", "died_at": "2026-01-01T00:00:01Z"
    });
    adjust(&mut letter);
    serde_json::json!({ "letter": letter })
}

/// Proves D7.
#[test]
fn an_import_says_which_lines_it_cannot_read_and_removes_none_of_them() {
    let place = with_letters(&[
        letter(1, |_| {}),
        letter(2, |letter| letter["attempts"] = "1".into()),
        letter(3, |_| {}),
    ]);
    let before = place.read("dead.jsonl.1");
    for _ in 0..2 {
        let ran = place.run(&["spool", "import"]);
        ran.fails_with(&["1 lines could not be read"]);
        assert!(
            ran.stderr
                .contains("dead.jsonl.1: 1 lines cannot be read, the first in line 2"),
            "{ran:?}"
        );
        assert_eq!((dead(&place), place.read("dead.jsonl.1")), (2, before.clone()));
    }
    place.write("dead.jsonl.1", &before.replace("\"1\"", "1"));
    assert_eq!(import(&place, &[])["imported"], 1);
    assert_eq!((dead(&place), place.path("dead.jsonl.1").exists()), (3, false));
}

/// Rows are written by others too, and what breaks a rule is what dies.
///
/// Proves D7.
#[test]
fn a_letter_comes_back_though_it_could_not_be_enqueued() {
    let place = with_letters(&[
        letter(1, |letter| letter["ordering_key"] = "".into()),
        letter(2, |letter| letter["tenant"] = "".into()),
        letter(3, |letter| letter["headers"]["a"] = "1\n2".into()),
        letter(4, |letter| letter["topic"] = "x".repeat(600).into()),
    ]);
    assert_eq!(import(&place, &[])["imported"], 4);
    let listed = place.run(&["dead", "list", "--json"]).success();
    let rows: Vec<Value> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&rows[0]["ordering_key"], &rows[1]["tenant"]),
        (&"".into(), &"".into()),
        "{rows:#?}"
    );
    assert_eq!(rows[2]["headers"]["a"], "1\n2", "{rows:#?}");
}

/// Proves D7.
#[test]
fn what_was_discarded_or_purged_is_not_brought_back() {
    let letters: Vec<_> = (1..=3).map(|number| letter(number, |_| {})).collect();
    let place = with_letters(&letters);
    import(&place, &[]);
    // They are in the file again, as where the table of dead letters had refused them.
    place.write("dead.jsonl", &lines(&letters));
    assert_eq!(spooled(&place).len(), 3);
    let id = letters[0]["letter"]["id"].as_str().unwrap();
    place.run(&["dead", "discard", id, "--yes"]).success();
    assert_eq!(spooled(&place).len(), 2);
    place.run(&["purge", "--dead", "--older-than", "0s", "--yes"]).success();
    assert_eq!((spooled(&place).len(), dead(&place)), (0, 0));
    assert_eq!((&import(&place, &[])["imported"], dead(&place)), (&0.into(), 0));
}

#[test]
fn a_dry_run_names_the_letters_that_an_import_refuses() {
    let place = with_letters(&[
        letter(1, |_| {}),
        letter(2, |letter| {
            letter["payload"] = Value::Null;
            letter["payload_base64"] = "***".into();
        }),
    ]);
    for args in [["spool", "import", "--dry-run"].as_slice(), &["spool", "import"]] {
        let ran = place.run(args);
        ran.fails_with(&["1 letters could not be imported"]);
        assert!(ran.stderr.contains("eeeeffff0002: its payload"), "{ran:?}");
        assert!(
            ran.stdout.contains("import 1") || ran.stdout.contains("imported 1"),
            "{ran:?}"
        );
    }
    // Where the lock cannot be made, as on a disk that is read-only.
    std::fs::remove_file(place.path("dead.jsonl.import.lock")).unwrap();
    std::fs::create_dir(place.path("dead.jsonl.import.lock")).unwrap();
    place
        .run(&["spool", "import"])
        .fails_with(&["copy", "dead.jsonl", "can be written"]);
}

#[test]
fn a_file_that_cannot_be_written_is_found_by_the_check() {
    let place = Place::with_sqlite().migrated();
    let place = place
        .set("PUBLISHER__KIND", "stdout")
        .set("SAFETY_NET__FILE", "./nowhere/dead.jsonl");
    place
        .run(&["run", "--check"])
        .fails_with(&["safety_net.file", "./nowhere: there is no such directory; make it"]);
    let place = place.set("SAFETY_NET__FILE", "./dead.jsonl");
    let found = place.run(&["run", "--check"]).success();
    assert!(
        found.stdout.contains("safety net ./dead.jsonl holds 0 letters"),
        "{found:?}"
    );
    let place = place.set("SAFETY_NET__ALERT__URL", "http://127.0.0.1:1/hooks/very-secret");
    let failed = place.run(&["run", "--check"]);
    failed.fails_with(&["safety_net.alert.url"]);
    assert!(!failed.stderr.contains("very-secret"), "{failed:?}");
}
