//! Standard output of a process of its own, into a pipe whose reader may die and come back.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::DateTime;
use posthaste_core::publisher::{Delivery, ErrorKind, ErrorScope, LeaseCheck, Outcome, Place, PublishError};
use posthaste_core::{Batch, Message, MessageId, Publisher, Report};
use posthaste_publishers::Stdout;
use posthaste_testkit::publishing::{left_out, names_in};
use posthaste_testkit::{Ability, Counterpart, Disturbance};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::beside;

/// A named pipe, and `cat` that reads it into a file.
struct Pipe {
    directory: TempDir,
    /// To know how far the reader is: what it has read of this, it has read of all before.
    writer: File,
    reader: Child,
}

impl Pipe {
    fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = read(&directory);
        // Waits for the reader.
        let writer = File::options().write(true).open(path).unwrap();
        Self {
            directory,
            writer,
            reader,
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(self.directory.path().join("read")).unwrap()
    }

    /// All that was written.
    fn read_to_the_end(&mut self) -> String {
        let mark = format!("mark {}\n", MessageId::new());
        self.writer.write_all(mark.as_bytes()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let text = self.text();
            if text.contains(&mark) {
                return text;
            }
            assert!(Instant::now() < deadline, "nobody reads the pipe");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end_reader(&mut self) {
        self.reader.kill().unwrap();
        self.reader.wait().unwrap();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.reader.kill();
        let _ = self.reader.wait();
    }
}

fn read(directory: &TempDir) -> Child {
    let to = File::options()
        .create(true)
        .append(true)
        .open(directory.path().join("read"));
    let mut cat = Command::new("cat");
    cat.arg(directory.path().join("pipe")).stdout(to.unwrap());
    cat.spawn().unwrap()
}

const READY: &str = "ready";

/// The publisher of another process.
#[derive(Clone)]
struct Remote(Arc<Mutex<Process>>);

struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStderr>>,
}

impl Remote {
    fn start(pipe: &Pipe) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "suite::stdout::publishes_for_its_parent"])
            .args(["--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(pipe.writer.try_clone().unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(child.stderr.take().unwrap()).lines();
        // The test runner within it prints too, and must not meet with trouble.
        assert_eq!(answers.next().unwrap().unwrap(), READY);
        Self(Arc::new(Mutex::new(Process {
            requests: child.stdin.take(),
            answers,
            child,
        })))
    }
}

impl Process {
    fn say(&mut self, line: &Value) {
        writeln!(self.requests.as_ref().unwrap(), "{line}").unwrap();
    }

    fn publish(&mut self, batch: &Batch, report: &Report) {
        let messages = batch.deliveries.iter().map(|delivery| &delivery.message);
        let messages = messages.map(|message| {
            json!([
                message.topic.as_str(),
                message.ordering_key.as_deref(),
                String::from_utf8_lossy(&message.payload)
            ])
        });
        self.say(&messages.collect());
        loop {
            let line = self.answers.next().expect("the process lives").unwrap();
            let Ok(Value::Array(said)) = serde_json::from_str(&line) else {
                panic!("the process says {line}");
            };
            let Some(place) = said[0].as_u64() else { return };
            // The process has a batch of its own, which begins at 0; here it may be some messages of a larger one.
            let place = batch.deliveries[usize::try_from(place).unwrap()].place;
            match said[1].as_str().unwrap() {
                "may_send" => self.say(&json!(batch.may_send(place))),
                "delivered" => report.delivered(place),
                "not attempted" => report.outcome(place, Outcome::NotAttempted),
                "unavailable" => report.failed(place, PublishError::transport(said[2].as_str().unwrap())),
                other => report.failed(place, PublishError::unknown(other)),
            }
        }
    }
}

/// The process ends with its input.
impl Drop for Process {
    fn drop(&mut self) {
        self.requests.take();
        let _ = self.child.wait();
    }
}

#[async_trait]
impl Publisher for Remote {
    async fn publish(&self, batch: Batch, report: Report) {
        let process = Arc::clone(&self.0);
        let publishing = move || process.lock().unwrap().publish(&batch, &report);
        tokio::task::spawn_blocking(publishing).await.unwrap();
    }

    fn name(&self) -> &'static str {
        "stdout"
    }
}

/// The parent, asked by the publisher here. Its answers come between its batches.
struct Parent;

impl LeaseCheck for Parent {
    fn may_send(&self, place: Place) -> bool {
        eprintln!("{}", json!([place.index(), "may_send"]));
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).unwrap();
        answer.trim() == "true"
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the suite in a process of its own"]
async fn publishes_for_its_parent() {
    println!();
    eprintln!("{READY}");
    let publisher = Stdout::new();
    let mut line = String::new();
    while io::stdin().read_line(&mut line).unwrap() > 0 {
        let messages: Vec<[String; 3]> = serde_json::from_str(&line).unwrap();
        line.clear();
        let messages = messages.into_iter();
        let messages: Vec<_> = messages
            .map(|[topic, key, payload]| Message::new(topic, payload).key(key))
            .collect();
        let report = Report::new(move |place, outcome| {
            let place = place.index();
            let told = match outcome {
                Outcome::Delivered(_) => json!([place, "delivered"]),
                Outcome::NotAttempted => json!([place, "not attempted"]),
                Outcome::Failed(error) if (error.kind, &error.scope) == (ErrorKind::Transport, &ErrorScope::Broker) => {
                    json!([place, "unavailable", error.message])
                }
                other => json!([place, format!("{other:?}")]),
            };
            eprintln!("{told}");
        });
        let deliveries = messages
            .into_iter()
            .map(|message| Delivery::new(message, DateTime::UNIX_EPOCH));
        let batch = Batch::new(deliveries.collect(), Arc::new(Parent));
        publisher.publish(batch, report).await;
        eprintln!("{}", json!(["done"]));
    }
}

struct Output {
    publisher: Arc<dyn Publisher>,
    pipe: Mutex<Pipe>,
}

impl Counterpart for Output {
    fn lacks() -> &'static [(Ability, &'static str)] {
        &[
            (Ability::Refuse, "a pipe takes every line"),
            (
                Ability::Silence,
                "a pipe that nobody reads makes its writer wait, which the relay ends",
            ),
            (Ability::Panic, "no code of others runs"),
            (Ability::Throttle, "a pipe asks nobody to wait"),
            (Ability::Limit, "a line may be of any size"),
            (Ability::Full, "a pipe that is full makes its writer wait"),
            (Ability::Check, "a pipe cannot be asked"),
        ]
    }

    async fn fresh(_: &[Ability]) -> Option<Self> {
        let pipe = Pipe::open();
        Some(Self {
            publisher: Arc::new(Remote::start(&pipe)),
            pipe: Mutex::new(pipe),
        })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    async fn arrived(&self) -> Vec<String> {
        let text = self.pipe.lock().unwrap().read_to_the_end();
        for line in text.lines().filter(|line| line.contains("\"suite\"")) {
            serde_json::from_str::<Value>(line).expect("a whole line");
        }
        names_in(&text)
    }

    async fn disturb(&self, disturbance: Disturbance) {
        assert_eq!(disturbance, Disturbance::Death);
        let mut pipe = self.pipe.lock().unwrap();
        pipe.read_to_the_end();
        pipe.end_reader();
    }

    async fn recover(&self) {
        let mut pipe = self.pipe.lock().unwrap();
        pipe.reader = read(&pipe.directory);
    }

    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        let mut pipe = Pipe::open();
        let dead = Remote::start(&pipe);
        pipe.end_reader();
        beside(Arc::new(dead), self.publisher())
    }
}

posthaste_testkit::publisher_suite!(Output);

#[test]
fn what_is_left_out() {
    insta::assert_snapshot!(left_out::<Output>());
}
