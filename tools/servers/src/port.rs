use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::Path,
};

use crate::{Error, Result};

/// Below the range from which Linux picks the ports of outgoing connections. A port out of that range could be lost to
/// any client while its server is stopped, or a client that keeps reconnecting could be connected to itself.
const PORTS: Range<u16> = 20_000..32_000;

/// A loopback port on which nobody listens.
///
/// The port is free when it is found, not reserved: whoever uses it must be ready to ask for another one.
pub(crate) fn find_free() -> Result<u16> {
    first_free(from_anywhere()).ok_or(Error::NoFreePort)
}

/// The same for several ports, all different.
pub(crate) fn find_several_free(count: usize) -> Result<Vec<u16>> {
    let free: Vec<_> = from_anywhere().filter(|port| is_free(*port)).take(count).collect();
    if free.len() == count {
        Ok(free)
    } else {
        Err(Error::NoFreePort)
    }
}

/// Every port once. A random start keeps processes that look at the same moment from finding the same port.
fn from_anywhere() -> impl Iterator<Item = u16> {
    let count = PORTS.end - PORTS.start;
    let random = RandomState::new().build_hasher().finish();
    let start = u16::try_from(random % u64::from(count)).expect("the remainder is below a u16");
    (0..count).map(move |step| PORTS.start + (start + step) % count)
}

fn first_free(mut ports: impl Iterator<Item = u16>) -> Option<u16> {
    ports.find(|port| is_free(*port))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Where a server's port is noted for whoever attaches.
const NOTE: &str = "port";

/// Notes the port in the server's home.
pub(crate) fn note(home: &Path, port: u16) -> Result<()> {
    let note = home.join(NOTE);
    fs::write(&note, port.to_string()).map_err(Error::io(format!("write {}", note.display())))
}

/// The port that was noted there.
pub(crate) fn noted(home: &Path) -> Result<u16> {
    let note = home.join(NOTE);
    fs::read_to_string(&note)
        .and_then(|port| port.parse().map_err(io::Error::other))
        .map_err(Error::io(format!("read {}", note.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_port_is_outside_the_outgoing_range() {
        assert!(PORTS.contains(&find_free().unwrap()));
    }

    #[test]
    fn a_port_in_use_is_passed_over() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = listener.local_addr().unwrap().port();
        let found = first_free(std::iter::once(taken).chain(PORTS));
        assert!(PORTS.contains(&found.unwrap()));
        assert_eq!(first_free(std::iter::once(taken)), None);
    }
}
