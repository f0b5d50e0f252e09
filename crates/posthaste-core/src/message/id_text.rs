//! The text of an id, of any length, and still copied like a number.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Bytes of a text that is held in place. Room for what keys are made of in practice: a SHA-512 in hexadecimal digits
/// with a prefix, or two UUIDs and a name.
pub const INLINE_ID_BYTES: usize = 158;

/// The text of an id. The engine copies ids all the time, so short texts are held in place. Longer ones are kept once
/// each for as long as the process lives: nobody can say when the last copy of one is gone.
#[derive(Clone, Copy)]
pub struct IdText(Held);

#[derive(Clone, Copy)]
enum Held {
    Inline { bytes: [u8; INLINE_ID_BYTES], length: u8 },
    Interned(&'static str),
}

static INTERNED: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

impl IdText {
    /// Holds any text as it is.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; INLINE_ID_BYTES];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(text.as_bytes());
                Self(Held::Inline { bytes, length })
            }
            _ => Self(Held::Interned(intern(text))),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Held::Inline { bytes, length } => std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default(),
            Held::Interned(text) => text,
        }
    }
}

fn intern(text: &str) -> &'static str {
    // A set is whole again after every insert, so a panic elsewhere did not spoil it.
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = interned.get(text) {
        return known;
    }
    let kept: &'static str = Box::leak(text.into());
    interned.insert(kept);
    kept
}

impl PartialEq for IdText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for IdText {}

impl PartialOrd for IdText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for IdText {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for IdText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for IdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_text_is_kept_once() {
        let text = "x".repeat(INLINE_ID_BYTES + 1);
        let (one, two) = (IdText::new(&text), IdText::new(&text));
        assert_eq!(one.as_str(), text);
        assert!(std::ptr::eq(one.as_str(), two.as_str()), "the text was kept twice");
    }

    #[test]
    fn an_id_is_no_larger_than_three_cache_lines() {
        assert!(
            size_of::<crate::MessageId>() <= 192,
            "{}",
            size_of::<crate::MessageId>()
        );
    }

    proptest! {
        #[test]
        fn texts_are_held_and_compared_whole(a in "(?s).{0,400}", b in "(?s).{0,400}") {
            let (one, two) = (IdText::new(&a), IdText::new(&b));
            prop_assert_eq!(one.as_str(), a.as_str());
            prop_assert_eq!(one == two, a == b);
            prop_assert_eq!(one.cmp(&two), a.cmp(&b));
        }
    }
}
