//! Type names of events: `{company}.{domain}.{action}.v{n}`.

use std::fmt;

use thiserror::Error;

/// The parts of a well-formed type name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName<'a> {
    /// Who owns the event.
    pub company: &'a str,
    /// The part of the business it comes from; gives the default topic.
    pub domain: &'a str,
    /// What happened.
    pub action: &'a str,
    /// Version of the payload's shape, from 1.
    pub version: u32,
}

/// Why a type name was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{name}` is not a type name: {reason}; write it as {{company}}.{{domain}}.{{action}}.v{{n}}, e.g. acme.order.created.v1"
)]
pub struct MalformedTypeName {
    name: String,
    reason: &'static str,
}

impl<'a> TypeName<'a> {
    /// Takes a name apart, or says what is wrong with it.
    pub fn parse(name: &'a str) -> Result<Self, MalformedTypeName> {
        let refuse = |reason| {
            Err(MalformedTypeName {
                name: name.to_owned(),
                reason,
            })
        };
        let parts: Vec<&str> = name.split('.').collect();
        let [company, domain, action, version] = parts[..] else {
            return refuse("it needs four parts between dots");
        };
        if ![company, domain, action].into_iter().all(is_word) {
            return refuse(
                "company, domain and action are lower-case letters, digits and hyphens, beginning with a letter",
            );
        }
        let digits = version.strip_prefix('v').unwrap_or_default();
        match digits.parse() {
            Ok(number) if number > 0 && !digits.starts_with(['0', '+']) => Ok(Self {
                company,
                domain,
                action,
                version: number,
            }),
            _ => refuse("the last part is `v` and a whole number from 1"),
        }
    }

    /// The topic such events go to unless the producer says otherwise.
    pub fn default_topic(&self) -> String {
        format!("{}-events", self.domain)
    }
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.v{}", self.company, self.domain, self.action, self.version)
    }
}

fn is_word(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_lowercase())
        && part
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves C3.
    #[test]
    fn a_well_formed_name_gives_its_parts_and_topic() {
        let name = TypeName::parse("loopers.order.created.v1").unwrap();
        assert_eq!(
            (name.company, name.domain, name.action, name.version),
            ("loopers", "order", "created", 1)
        );
        assert_eq!(name.default_topic(), "order-events");
        assert_eq!(name.to_string(), "loopers.order.created.v1");
        assert_eq!(
            TypeName::parse("a.product-view.counted.v12").unwrap().default_topic(),
            "product-view-events"
        );
    }

    /// Proves C3.
    #[test]
    fn malformed_names_are_refused_with_the_remedy() {
        for bad in [
            "",
            "OrderCreated",
            "a.b.c",
            "a.b.c.1",
            "a.b.c.v0",
            "a.b.c.v01",
            "a.b.c.v",
            "a.b.c.v+1",
            "a.b.c.v-1",
            "a..c.v1",
            "a.b.c.d.v1",
            "A.b.c.v1",
            "a.b c.d.v1",
            "a.b.c.v1 ",
            "1a.b.c.v1",
            "a.b.c.v99999999999",
        ] {
            let error = TypeName::parse(bad).expect_err(bad).to_string();
            assert!(error.contains("acme.order.created.v1"), "{error}");
        }
    }
}
