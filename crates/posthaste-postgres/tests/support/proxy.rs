//! A network that swallows what is sent.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

/// Stands between a client and its server.
pub struct Proxy {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    frozen: AtomicBool,
    deaf: AtomicBool,
    unheard: AtomicUsize,
}

impl Proxy {
    /// One before this server, and how it is reached by it.
    pub fn before(server: PgConnectOptions) -> (Self, PgConnectOptions) {
        let (host, port) = (server.get_host().to_owned(), server.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let of_clients = Arc::clone(&state);
        thread::spawn(move || {
            let mut unheard = Vec::new();
            for client in listener.incoming() {
                let client = client.unwrap();
                if of_clients.deaf.load(Ordering::SeqCst) {
                    unheard.push(client);
                    of_clients.unheard.store(unheard.len(), Ordering::SeqCst);
                    continue;
                }
                let Ok(server) = TcpStream::connect((host.as_str(), port)) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&of_clients);
                    thread::spawn(move || pass_on(from, &to, &state.frozen));
                }
            }
        });
        (Self { state }, server.host("127.0.0.1").port(address.port()))
    }

    /// Whether nothing gets through.
    pub fn freeze(&self, frozen: bool) {
        self.state.frozen.store(frozen, Ordering::SeqCst);
    }

    /// Whether new connections are taken and then never answered; those that there are go on.
    pub fn be_deaf(&self, deaf: bool) {
        self.state.deaf.store(deaf, Ordering::SeqCst);
    }

    /// How many connections will never be answered.
    pub fn unheard(&self) -> usize {
        self.state.unheard.load(Ordering::SeqCst)
    }
}

fn pass_on(mut from: TcpStream, mut to: &TcpStream, frozen: &AtomicBool) {
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while frozen.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
