//! As much of Kafka's protocol as it takes to ask a broker whom it knows, and which replicas are in sync.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(2);

/// A Metadata request, version 1, about all topics: length, API key, API version, correlation id, no client id, and no
/// list of topics.
const REQUEST: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

/// A cluster as one of its brokers sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct View {
    brokers: Vec<i32>,
    partitions: Vec<Partition>,
}

#[derive(Debug, PartialEq, Eq)]
struct Partition {
    /// Negative if there is none.
    leader: i32,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
}

impl View {
    /// Asks the broker on that port.
    pub(super) fn of(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut broker = TcpStream::connect_timeout(&address, TIMEOUT)?;
        broker.set_read_timeout(Some(TIMEOUT))?;
        broker.set_write_timeout(Some(TIMEOUT))?;
        broker.write_all(&REQUEST)?;
        let length = read_i32(&mut broker)?;
        let mut response = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        broker.read_exact(&mut response)?;
        Self::read(&mut response.as_slice())
    }

    /// Whether these brokers are up and hold all that they should: nothing is lost if one of them ends next.
    pub(super) fn is_whole(&self, running: &[i32]) -> bool {
        running.iter().all(|id| self.brokers.contains(id))
            && self.partitions.iter().all(|partition| partition.is_whole(running))
    }

    fn read(response: &mut &[u8]) -> io::Result<Self> {
        let _correlation_id = read_i32(response)?;
        let brokers = read_array(response, |broker| {
            let id = read_i32(broker)?;
            skip_string(broker)?;
            let _port = read_i32(broker)?;
            skip_string(broker)?;
            Ok(id)
        })?;
        let _controller = read_i32(response)?;
        let topics = read_array(response, |topic| {
            let _error = read::<2>(topic)?;
            skip_string(topic)?;
            let _is_internal = read::<1>(topic)?;
            read_array(topic, Partition::read)
        })?;
        Ok(Self {
            brokers,
            partitions: topics.into_iter().flatten().collect(),
        })
    }
}

impl Partition {
    fn is_whole(&self, running: &[i32]) -> bool {
        let mut ours = self.replicas.iter().filter(|replica| running.contains(replica));
        if self.leader < 0 {
            // A replica that is down may be the only one that could lead; without it no other comes back in sync.
            return ours.count() < self.replicas.len();
        }
        ours.all(|replica| self.in_sync.contains(replica))
    }

    fn read(response: &mut &[u8]) -> io::Result<Self> {
        let _error = read::<2>(response)?;
        let _index = read_i32(response)?;
        Ok(Self {
            leader: read_i32(response)?,
            replicas: read_array(response, read_i32)?,
            in_sync: read_array(response, read_i32)?,
        })
    }
}

fn read_array<'r, T>(
    response: &mut &'r [u8],
    mut element: impl FnMut(&mut &'r [u8]) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let count = read_i32(response)?;
    (0..count).map(|_| element(response)).collect()
}

fn skip_string(response: &mut &[u8]) -> io::Result<()> {
    // A string that is null has the length -1.
    let length = usize::try_from(i16::from_be_bytes(read(response)?)).unwrap_or(0);
    *response = response.get(length..).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(())
}

fn read_i32(response: &mut impl Read) -> io::Result<i32> {
    read(response).map(i32::from_be_bytes)
}

fn read<const N: usize>(response: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    response.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] = b"\0\0\0\x07\
        \0\0\0\x02\
        \0\0\0\x05\0\x04host\0\0\x23\x84\xff\xff\
        \0\0\0\x06\0\x01h\0\0\x23\x85\0\x04rack\
        \0\0\0\x05\
        \0\0\0\x01\
        \0\0\0\x03abc\0\
        \0\0\0\x01\
        \0\0\0\0\0\0\0\0\0\x06\
        \0\0\0\x02\0\0\0\x05\0\0\0\x06\
        \0\0\0\x01\0\0\0\x06";

    #[test]
    fn brokers_and_replicas_are_read_out_of_the_response() {
        let partition = Partition {
            leader: 6,
            replicas: vec![5, 6],
            in_sync: vec![6],
        };
        let view = View {
            brokers: vec![5, 6],
            partitions: vec![partition],
        };
        assert_eq!(View::read(&mut &RESPONSE[..]).unwrap(), view);
        assert!(!view.is_whole(&[5, 6]), "5 is behind");
        assert!(view.is_whole(&[6]));
        assert!(!view.is_whole(&[6, 7]), "7 is not known");
    }

    #[test]
    fn a_partition_waits_for_a_leader_only_if_there_must_be_one() {
        let leaderless = Partition {
            leader: -1,
            replicas: vec![1, 2],
            in_sync: vec![2],
        };
        assert!(leaderless.is_whole(&[1]));
        assert!(!leaderless.is_whole(&[1, 2]));
    }

    #[test]
    fn a_response_cut_short_is_an_error() {
        for length in 0..RESPONSE.len() {
            assert!(View::read(&mut &RESPONSE[..length]).is_err(), "{length}");
        }
    }
}
