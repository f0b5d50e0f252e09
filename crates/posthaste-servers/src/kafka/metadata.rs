//! As much of Kafka's protocol as it takes to ask a broker whom it knows.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(2);

/// A Metadata request, version 1, about no topic at all: length, API key, API version, correlation id, no client id,
/// and an empty list of topics.
const REQUEST: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 0];

/// The ids of the brokers that, according to the broker on that port, take part in the cluster.
pub(super) fn brokers_known_to(port: u16) -> io::Result<Vec<i32>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut broker = TcpStream::connect_timeout(&address, TIMEOUT)?;
    broker.set_read_timeout(Some(TIMEOUT))?;
    broker.set_write_timeout(Some(TIMEOUT))?;
    broker.write_all(&REQUEST)?;
    read_brokers(&mut broker)
}

/// Length, correlation id, and the brokers with id, host, port and rack. The rest is left unread.
fn read_brokers(response: &mut impl Read) -> io::Result<Vec<i32>> {
    skip(response, 8)?;
    let count = i32::from_be_bytes(read(response)?);
    (0..count)
        .map(|_| {
            let id = i32::from_be_bytes(read(response)?);
            skip_string(response)?;
            skip(response, 4)?;
            skip_string(response)?;
            Ok(id)
        })
        .collect()
}

fn skip_string(response: &mut impl Read) -> io::Result<()> {
    let length = i16::from_be_bytes(read(response)?);
    // A string that is null has the length -1.
    skip(response, u64::try_from(length).unwrap_or(0))
}

fn skip(response: &mut impl Read, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut response.take(bytes), &mut io::sink())?;
    if skipped == bytes {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn read<const N: usize>(response: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    response.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] = b"\0\0\0\x99\0\0\0\x07\
        \0\0\0\x02\
        \0\0\0\x05\0\x04host\0\0\x23\x84\xff\xff\
        \0\0\0\x06\0\x01h\0\0\x23\x85\0\x04rack\
        and so on";

    #[test]
    fn the_ids_are_read_out_of_the_response() {
        assert_eq!(read_brokers(&mut &RESPONSE[..]).unwrap(), [5, 6]);
    }

    #[test]
    fn a_response_cut_short_is_an_error() {
        for length in 0..RESPONSE.len() - "and so on".len() {
            assert!(read_brokers(&mut &RESPONSE[..length]).is_err(), "{length}");
        }
    }
}
