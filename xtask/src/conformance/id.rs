use std::{fmt, str::FromStr};

/// The letter under which pitfalls are filed.
const PITFALL: char = 'P';

/// The name of one promise: `B7`, or `P14` for pitfall 14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Id {
    letter: char,
    number: u8,
}

impl Id {
    pub(super) fn pitfall(number: u8) -> Self {
        Self {
            letter: PITFALL,
            number,
        }
    }

    pub(super) fn is_pitfall(self) -> bool {
        self.letter == PITFALL
    }

    /// The id as a test's documentation has it.
    pub(super) fn spelled_out(self) -> String {
        if self.is_pitfall() {
            format!("pitfall {}", self.number)
        } else {
            self.to_string()
        }
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let none = || format!("`{text}` is not an id such as B7");
        let letter = text.chars().next().filter(char::is_ascii_uppercase).ok_or_else(none)?;
        let number = text[1..].parse().map_err(|_| none())?;
        Ok(Self { letter, number })
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.letter, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_number_not_by_text() {
        let mut ids: Vec<Id> = ["B2", "A10", "A9"].iter().map(|id| id.parse().unwrap()).collect();
        ids.sort();
        assert_eq!(
            ids.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["A9", "A10", "B2"]
        );
    }
}
