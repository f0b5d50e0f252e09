//! What is sent: so many rows, each with its number in the payload, by which it is known again at the other end.

use serde::{Deserialize, Serialize};

/// The topic of every row, which the maps of existing tables derive from their columns.
pub(crate) const TOPIC: &str = "order-events";

/// The number of rows that only warm up, and of all with a number below it; they are not counted.
pub(crate) const WARM_UP: u32 = 0;

/// The rows of a run. Row `n` belongs to key `n % keys`, so rows of a key have growing numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) rows: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) keys: u32,
}

impl Workload {
    /// Payloads of 300 bytes, 1,000 keys.
    pub(crate) fn of(rows: u32) -> Self {
        Self {
            rows,
            payload_bytes: 300,
            keys: 1_000,
        }
    }

    /// The payload of a row, as the fill statements write it.
    pub(crate) fn payload(&self, n: u32) -> String {
        let mut payload = format!("{{\"n\":{n},\"note\":\"");
        let room = (self.payload_bytes as usize).saturating_sub(payload.len() + 2);
        payload.extend(std::iter::repeat_n('x', room));
        payload.push_str("\"}");
        payload
    }

    /// The key of a row.
    pub(crate) fn key(&self, n: u32) -> String {
        format!("key-{}", n % self.keys)
    }
}

/// The number of the row that a payload belongs to. A database may have put spaces into the JSON.
pub(crate) fn number_of(payload: &[u8]) -> Option<u32> {
    const FIELD: &[u8] = b"\"n\":";
    let at = payload.windows(FIELD.len()).position(|window| window == FIELD)?;
    let number = payload[at + FIELD.len()..].trim_ascii_start();
    if number.starts_with(b"-") {
        return Some(WARM_UP);
    }
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit());
    let mut number = None;
    for digit in digits {
        number = Some(
            number
                .unwrap_or(0u32)
                .checked_mul(10)?
                .checked_add(u32::from(digit - b'0'))?,
        );
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_known_by_its_payload() {
        let workload = Workload::of(10);
        let payload = workload.payload(1_234_567);
        assert_eq!(payload.len(), 300);
        assert_eq!(number_of(payload.as_bytes()), Some(1_234_567));
        assert_eq!(number_of(b"{\"n\": 42, \"note\": \"x\"}"), Some(42));
        assert_eq!(number_of(b"{\"n\":-7,\"note\":\"x\"}"), Some(WARM_UP));
        assert_eq!(number_of(b"{}"), None);
        assert_eq!(number_of(b"{\"n\":99999999999}"), None);
    }
}
