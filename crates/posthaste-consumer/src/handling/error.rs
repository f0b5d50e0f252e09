//! How handlers fail.

use std::error::Error;
use std::fmt;

type BoxError = Box<dyn Error + Send + Sync>;

/// Why an event could not be handled.
///
/// `?` turns any error into one that is tried again, which is right for most: the database was busy, a service did not
/// answer. (`anyhow::Error` is none by the standard library's measure; write `.map_err(HandlerError::retry)?` for it.)
/// An event that will never be handled, however often it is tried, is [permanent](HandlerError::permanent) and
/// goes to the dead-letter topic at once.
#[derive(Debug)]
pub struct HandlerError {
    permanent: bool,
    source: BoxError,
}

impl HandlerError {
    /// Worth another attempt.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self {
            permanent: false,
            source: error.into(),
        }
    }

    /// No attempt will ever succeed.
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self {
            permanent: true,
            source: error.into(),
        }
    }

    /// Whether no attempt will ever succeed.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }
}

/// The error and its causes, in one line.
impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.source.to_string();
        f.write_str(&said)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors repeat their cause in their own text.
            if !said.contains(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            cause = error.source();
        }
        Ok(())
    }
}

// Like `anyhow::Error` this type is no `std::error::Error` itself; otherwise the following could not be.
impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_its_causes_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the order cannot be read")]
        struct Outer(#[source] std::num::ParseIntError);
        #[derive(Debug, thiserror::Error)]
        #[error("the order cannot be read: {0}")]
        struct Repeating(#[source] std::num::ParseIntError);

        let cause = || "x".parse::<i32>().unwrap_err();
        let expected = "the order cannot be read: invalid digit found in string";
        assert_eq!(HandlerError::from(Outer(cause())).to_string(), expected);
        assert_eq!(HandlerError::from(Repeating(cause())).to_string(), expected);
        assert_eq!(HandlerError::permanent("gone").to_string(), "gone");
    }

    #[test]
    fn errors_are_tried_again_unless_said_otherwise() {
        assert!(!HandlerError::from(std::fmt::Error).is_permanent());
        assert!(HandlerError::permanent(std::fmt::Error).is_permanent());
    }
}
