//! `run` with the publishers that notify people: a webhook and the log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use crate::support::{Place, Ran};

const SECRET: &str = "hush-hush";

/// A webhook's receiver: takes everything, and remembers what was posted.
struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    fn start() -> Self {
        Self::over(|connection| connection)
    }

    /// The same over TLS. Also returns the certificate, which nobody trusts.
    fn start_with_tls() -> (Self, String) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let secured = move |connection| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            StreamOwned::new(session, connection)
        };
        (Self::over(secured), made.cert.pem())
    }

    fn over<S: Read + Write>(stream: impl Fn(TcpStream) -> S + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let posts: Arc<Mutex<Vec<Value>>> = Arc::default();
        let sink = Arc::clone(&posts);
        // It ends with the test's process.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (stream, sink) = (stream.clone(), Arc::clone(&sink));
                thread::spawn(move || {
                    let mut stream = BufReader::new(stream(connection.unwrap()));
                    while let Some(body) = request(&mut stream) {
                        sink.lock().unwrap().extend(serde_json::from_slice::<Value>(&body));
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        stream.get_mut().write_all(answer).unwrap();
                        stream.get_mut().flush().unwrap();
                    }
                });
            }
        });
        Self { address, posts }
    }

    fn url(&self) -> String {
        format!("http://{}/api/webhooks/123456/{SECRET}", self.address)
    }

    fn posts(&self) -> Vec<Value> {
        self.posts.lock().unwrap().clone()
    }
}

/// The body of the next request, or nothing if the connection is over.
fn request(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            return Some(body);
        }
    }
}

/// Proves D10.
#[test]
fn messages_are_posted_to_the_webhook_that_the_environment_names() {
    let receiver = Receiver::start();
    let place = Place::with_sqlite()
        .migrated()
        .set("PUBLISHER__KIND", "http")
        .set("PUBLISHER__FORMAT", "discord")
        .set("PUBLISHER__URL", &receiver.url());
    place.write(
        "posthaste.toml",
        "[publisher.discord]\nusername = 'Coffee'\ntitle = '{payload.guest} gave {payload.amount}'\ntext = '{topic}'\n\
         fields = [{ name = 'Key', value = '{key}' }]",
    );
    let payload = r#"{"guest": "ann", "amount": 5}"#;
    let id = place.enqueue(&["--topic", "donations", "--key", "g-1", "--payload", payload]);
    let checked = place.run(&["run", "--check"]).success();
    let found = format!("publisher  http, {} answers 200 OK", receiver.address);
    assert!(checked.stdout.contains(&found), "{checked:?}");
    assert!(receiver.posts().is_empty(), "a check posts nothing");

    let ran = place.run(&["run", "--drain", "--set", "log.level=trace"]).success();
    for output in [&checked.stdout, &checked.stderr, &ran.stdout, &ran.stderr] {
        assert!(!output.contains(SECRET), "{output}");
    }
    let posts = receiver.posts();
    assert_eq!(posts.len(), 1, "{ran:?}");
    assert_eq!(posts[0]["username"], "Coffee");
    let card = &posts[0]["embeds"][0];
    assert_eq!(card["title"], "ann gave 5");
    assert_eq!(card["description"], "donations");
    assert_eq!(card["fields"][0]["value"], "g-1");
    assert_eq!(card["footer"]["text"], id);
    let status = place.status();
    assert_eq!(
        (&status["pending"], &status["dead"]),
        (&0.into(), &0.into()),
        "{status}"
    );
}

#[test]
fn a_receivers_certificate_must_be_signed_by_somebody_whom_the_system_trusts() {
    let (receiver, certificate) = Receiver::start_with_tls();
    let place = Place::with_sqlite()
        .migrated()
        .set("PUBLISHER__KIND", "http")
        .set("PUBLISHER__FORMAT", "discord")
        .set("PUBLISHER__URL", &receiver.url().replace("http:", "https:"));
    place
        .run(&["run", "--check"])
        .fails_with(&["cannot be reached: invalid peer certificate"]);

    place.write("authorities.pem", &certificate);
    place.enqueue(&["--topic", "donations", "--payload", "1"]);
    let trusting = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("SSL_CERT_FILE", place.path("authorities.pem"));
        Ran::of(&mut command, "").success()
    };
    trusting(&["run", "--check"]);
    trusting(&["run", "--drain"]);
    assert_eq!(receiver.posts().len(), 1);
}

#[test]
fn a_receiver_that_is_unavailable_is_said_by_the_check() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = Place::empty()
        .set("PUBLISHER__KIND", "http")
        .set("PUBLISHER__URL", &format!("http://{gone}/{SECRET}"));
    let ran = place.run(&["run", "--check"]);
    ran.fails_with(&[
        &format!("HTTP receiver {gone}: cannot be reached"),
        "check the publisher's url",
    ]);
    assert!(!ran.stderr.contains(SECRET), "{ran:?}");
}

#[test]
fn settings_of_a_webhook_are_refused_by_field_and_its_address_is_never_quoted() {
    let url = format!("url = 'https://example.org/{SECRET}'\n");
    let with = |lines: &str| format!("[publisher]\nkind = 'http'\n{url}{lines}");
    let discord = |lines: &str| with(&format!("format = 'discord'\n[publisher.discord]\n{lines}"));
    let cases = [
        ("[publisher]\nkind = 'http'".to_owned(), "publisher.url: is missing"),
        (
            format!("[publisher]\nkind = 'http'\nurl = 'example.org/{SECRET}'"),
            "publisher.url = (hidden): not an address; write https://host/path",
        ),
        (
            format!("[publisher]\nkind = 'http'\nurl = 'https://example.org/{SECRET}"),
            "posthaste.toml: ",
        ),
        (
            format!("[publisher]\nkind = 'file'\npath = 'x'\n{url}"),
            "publisher.url = (hidden): is for the http publisher; set publisher.kind = \"http\"",
        ),
        (
            with("level = 'info'"),
            "publisher.level = \"info\": is for the log publisher",
        ),
        (
            "[publisher]\nanswer_within = '1s'".to_owned(),
            "publisher.answer_within = \"1s\": is for the kafka and http publishers",
        ),
        (
            with("answer_within = '1h'"),
            "publisher.answer_within = \"1h\": must be below relay.publish_timeout",
        ),
        (
            discord("title = '{colour}'"),
            "publisher.discord.title = \"{colour}\": `{colour}` is not known; use topic, event_type",
        ),
        (
            discord("username = 'Discord'"),
            "publisher.discord.username = \"Discord\": is refused by Discord",
        ),
        (
            discord("style = 'card'"),
            "publisher.discord.style = \"card\": unknown value; use embed",
        ),
        (
            discord("fields = [{ name = 'a', value = '{' }]"),
            "publisher.discord.fields.0.value = \"{\": a `{` is not closed",
        ),
        (
            "[publisher]\nkind = 'webhook'".to_owned(),
            "publisher.kind = \"webhook\": is called http now; set publisher.format = \"discord\"",
        ),
        (with("concurrency = 0"), "publisher.concurrency = 0: must be 1 to 1000"),
    ];
    for (lines, expected) in cases {
        let place = Place::empty();
        place.write("posthaste.toml", &lines);
        let ran = place.run(&["run"]);
        ran.fails_with(&[expected]);
        assert!(!ran.stderr.contains(SECRET), "{ran:?}");
    }
}

/// Proves D10.
#[test]
fn messages_are_logged_at_the_configured_level() {
    let place = Place::with_sqlite().migrated().set("PUBLISHER__KIND", "log");
    let id = place.enqueue(&["--topic", "donations", "--payload", r#"{"amount": 5}"#]);
    place
        .run(&["run", "--check", "--set", "log.level=warn"])
        .fails_with(&["the log drops events of level info", "log.level = \"info\""]);
    let args = [
        "run",
        "--drain",
        "--set",
        "log.format=json",
        "--set",
        "publisher.level=warn",
    ];
    let ran = place.run(&args).success();
    let lines = ran
        .stderr
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let logged: Vec<_> = lines.filter(|line| line["target"] == "posthaste::message").collect();
    assert_eq!(logged.len(), 1, "{ran:?}");
    assert_eq!(logged[0]["level"], "WARN");
    assert_eq!(logged[0]["fields"]["id"], id);
    assert_eq!(logged[0]["fields"]["payload"], r#"{"amount": 5}"#);
    let status = place.status();
    assert_eq!(
        (&status["pending"], &status["dead"]),
        (&0.into(), &0.into()),
        "{status}"
    );
}
