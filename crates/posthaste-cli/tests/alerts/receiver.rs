//! An HTTP receiver that does as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    Take,
    /// An internal error: the event is tried again.
    Fail,
    /// Nothing, until another answer is set.
    None,
}

pub struct Receiver {
    pub port: u16,
    answer: Arc<AtomicU8>,
}

impl Receiver {
    pub fn new(answer: Answer) -> Self {
        Self::on(free_port(), answer)
    }

    pub fn on(port: u16, answer: Answer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let answer = Arc::new(AtomicU8::new(answer as u8));
        let answers = Arc::clone(&answer);
        // It ends with the process of the tests.
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let answer = Arc::clone(&answers);
                thread::spawn(move || serve(connection, &answer));
            }
        });
        Self { port, answer }
    }

    pub fn answer(&self, answer: Answer) {
        self.answer.store(answer as u8, Ordering::SeqCst);
    }
}

/// The settings of a relay that posts there.
pub fn posting_to(port: u16) -> Vec<String> {
    let url = format!("publisher.url=http://127.0.0.1:{port}/events");
    ["--set", "publisher.kind=http", "--set", &url]
        .map(str::to_owned)
        .to_vec()
}

/// The settings of a relay that posts orders there and writes all other messages to a file.
pub fn orders_to(port: u16) -> String {
    format!(
        "[[publishers]]\nname = 'partner'\nkind = 'http'\nurl = 'http://127.0.0.1:{port}/'\n\
         [[publishers]]\nname = 'archive'\nkind = 'file'\npath = 'archive.jsonl'\n\
         [[routes]]\ntopic = 'orders'\nto = 'partner'\n[[routes]]\nto = 'archive'\n"
    )
}

/// Answers one request after the other; a client that hangs up ends it.
fn serve(connection: TcpStream, answer: &AtomicU8) -> Option<()> {
    let mut out = connection.try_clone().ok()?;
    let mut requests = BufReader::new(connection);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        requests.read_exact(&mut vec![0; length]).ok()?;
        while answer.load(Ordering::SeqCst) == Answer::None as u8 {
            thread::sleep(Duration::from_millis(10));
        }
        let status = if answer.load(Ordering::SeqCst) == Answer::Take as u8 {
            "200 OK"
        } else {
            "500 Internal Server Error"
        };
        write!(out, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}

/// A port on which nobody listens, below those that Linux gives to outgoing connections.
pub fn free_port() -> u16 {
    let random = u16::from_ne_bytes(uuid::Uuid::new_v4().as_bytes()[..2].try_into().unwrap());
    let ports = (0..12_000).map(|step| 20_000 + (random % 12_000 + step) % 12_000);
    let mut free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().expect("a free port")
}
