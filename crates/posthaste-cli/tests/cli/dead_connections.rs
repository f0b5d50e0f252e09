//! Connections that die without a word: a firewall forgot them, or a machine lost its power.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Place, eventually};

/// Passes on what connections say, except for those that were opened before the latest loss: they stay open, and silent.
struct Lossy {
    port: u16,
    losses: Arc<AtomicU32>,
}

impl Lossy {
    fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, losses) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&losses);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let opened = count.load(Ordering::SeqCst);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let count = Arc::clone(&count);
                    thread::spawn(move || pass_on(from, to, || count.load(Ordering::SeqCst) == opened));
                }
            }
        });
        Self { port, losses }
    }

    fn lose_all(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_alive: impl Fn() -> bool) {
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !is_alive() {
            // Nobody hears of its end.
            loop {
                thread::sleep(Duration::from_mins(1));
            }
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Each loss would take connections out of the pool for good, until none is left.
fn a_relay_survives_any_number_of_losses(place: Place, address: &(String, u16)) {
    let place = place.migrated();
    let lossy = Lossy::before(format!("{}:{}", address.0, address.1));
    let url = place.setting("DATABASE__URL").unwrap().to_owned();
    let through = url.replace(
        &format!("@{}:{}", address.0, address.1),
        &format!("@127.0.0.1:{}", lossy.port),
    );
    assert_ne!(url, through);
    let relay = [
        "run",
        "--set",
        "publisher.kind=file",
        "--set",
        "publisher.path=events.jsonl",
        "--set",
        "database.max_connections=2",
        "--set",
        "database.acquire_timeout=1s",
        "--set",
        "relay.store_timeout=500ms",
    ];
    let mut command = place.command(&relay);
    command.env("POSTHASTE_DATABASE__URL", through);
    let _relay = place.start_command(command);
    for loss in 1..=4 {
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
        eventually("it is delivered", || {
            std::fs::read_to_string(place.path("events.jsonl")).is_ok_and(|events| events.lines().count() >= loss)
        });
        lossy.lose_all();
    }
}

#[test]
fn postgres() {
    let Some(place) = Place::with_postgres() else { return };
    let address = address_in(place.setting("DATABASE__URL").unwrap());
    a_relay_survives_any_number_of_losses(place, &address);
}

#[test]
fn mariadb() {
    let Some(place) = Place::with_mariadb() else { return };
    let address = address_in(place.setting("DATABASE__URL").unwrap());
    a_relay_survives_any_number_of_losses(place, &address);
}

fn address_in(url: &str) -> (String, u16) {
    let (_, rest) = url.split_once('@').unwrap();
    let (address, _) = rest.split_once('/').unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    (host.to_owned(), port.parse().unwrap())
}
