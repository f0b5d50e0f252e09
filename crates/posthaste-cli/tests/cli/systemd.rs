//! What systemd is told, on a socket such as it has.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Background, Place, TO_STDOUT, eventually};

/// The end of the socket that systemd has.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn at(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.path("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            heard: Vec::new(),
        }
    }

    /// What was said since the last time.
    fn listen(&mut self) -> Vec<String> {
        let mut buffer = [0; 4_096];
        let mut heard = Vec::new();
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
            heard.extend(text.lines().map(str::to_owned));
        }
        self.heard.extend(heard.iter().cloned());
        heard
    }

    fn count(&mut self, said: &str) -> usize {
        self.listen();
        self.heard.iter().filter(|line| *line == said).count()
    }

    fn has_heard(&mut self, part: &str) -> bool {
        self.listen();
        self.heard.iter().any(|line| line.contains(part))
    }
}

fn start(place: &Place, settings: &[(&str, &str)]) -> Background {
    let mut command = place.command(&[&["run"][..], &TO_STDOUT].concat());
    command
        .env("NOTIFY_SOCKET", place.path("notify"))
        .env("WATCHDOG_USEC", "1000000")
        .envs(settings.iter().copied());
    place.start_command(command)
}

#[test]
fn it_is_told_when_the_relay_is_ready_alive_and_stopping() {
    let place = Place::with_sqlite().migrated();
    let mut manager = Manager::at(&place);
    let mut relay = start(&place, &[]);
    eventually("the relay is ready", || manager.count("READY=1") == 1);
    eventually("it says what it does", || manager.has_heard("STATUS=delivering"));
    let since = Instant::now();
    let before = manager.count("WATCHDOG=1");
    eventually("it is alive", || manager.count("WATCHDOG=1") >= before + 4);
    assert!(
        since.elapsed() > Duration::from_secs(1),
        "not more often than twice within the limit"
    );
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
    assert_eq!(manager.count("STOPPING=1"), 1);
    assert_eq!(manager.count("READY=1"), 1);
}

/// Else a database that is down for longer than a start may take would be a service that failed.
#[test]
fn a_relay_that_waits_for_its_database_asks_for_more_time() {
    let place = Place::empty().set("DATABASE__URL", "postgres://nobody@127.0.0.1:1/none");
    let mut manager = Manager::at(&place);
    let _relay = start(&place, &[]);
    eventually("it asks for more time", || manager.has_heard("EXTEND_TIMEOUT_USEC="));
    eventually("it says what it waits for", || {
        manager.has_heard("STATUS=the relay has not started")
    });
    assert_eq!(manager.count("READY=1"), 0);
}

#[cfg(feature = "failpoints")]
#[test]
fn a_relay_that_stands_still_is_silent_so_that_it_is_started_again() {
    let place = Place::with_sqlite().migrated();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    let mut manager = Manager::at(&place);
    let stalls = [
        ("FAILPOINTS", "before_settle=1*sleep(16000)"),
        ("POSTHASTE_RELAY__STORE_TIMEOUT", "1s"),
    ];
    let _relay = start(&place, &stalls);
    eventually("it is alive at first", || manager.count("WATCHDOG=1") > 2);
    eventually("it stands still", || manager.has_heard("settling stands still"));
    // What was on its way.
    std::thread::sleep(Duration::from_millis(600));
    manager.listen();
    std::thread::sleep(Duration::from_secs(2));
    let heard = manager.listen();
    assert!(!heard.iter().any(|line| line == "WATCHDOG=1"), "{heard:?}");
    let before = manager.count("WATCHDOG=1");
    eventually("it goes on", || manager.count("WATCHDOG=1") > before);
}
