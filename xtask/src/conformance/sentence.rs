use super::id::Id;

/// The ids in the `Proves …` sentences of a documentation text; none if there is no such sentence.
///
/// A sentence ends with its paragraph or at the first mark, so `Proves B7: an expired lease is claimed again.` is
/// read as well.
pub(super) fn ids(documentation: &str) -> Result<Vec<Id>, String> {
    let paragraphs = documentation.split("\n\n");
    let sentences = paragraphs.flat_map(|paragraph| {
        let starts = paragraph.match_indices("Proves ");
        starts
            .filter(|(at, _)| starts_here(&paragraph[..*at]))
            .map(|(at, word)| {
                let rest = &paragraph[at + word.len()..];
                rest.split(['.', ':', ';', '(']).next().unwrap_or(rest)
            })
    });
    let mut ids = Vec::new();
    for sentence in sentences {
        ids.extend(list(sentence)?);
    }
    Ok(ids)
}

/// Whether `Proves` stands for itself and is not quoted, as in `/// Proves B7.`
fn starts_here(before: &str) -> bool {
    (before.is_empty() || before.ends_with(char::is_whitespace)) && !before.ends_with("/// ")
}

fn list(sentence: &str) -> Result<Vec<Id>, String> {
    let mut ids = Vec::new();
    let mut pitfalls = false;
    for word in sentence.split([',', ' ', '\n']) {
        match word {
            "" | "and" => {}
            "pitfall" | "pitfalls" => pitfalls = true,
            number if pitfalls && number.parse::<u8>().is_ok() => {
                ids.extend(number.parse().map(Id::pitfall));
            }
            id => {
                ids.push(id.parse().map_err(|reason| format!("after `Proves`: {reason}"))?);
                pitfalls = false;
            }
        }
    }
    if ids.is_empty() {
        Err("`Proves` names nothing".to_owned())
    } else {
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(documentation: &str) -> String {
        match ids(documentation) {
            Ok(ids) => ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(problem) => problem,
        }
    }

    #[test]
    fn lists_are_read_in_every_form_in_use() {
        for (documentation, expected) in [
            ("Proves B7.", "B7"),
            ("Proves A2, B2 and pitfall 14.", "A2 B2 P14"),
            ("Proves pitfalls 4, 7 and B9.", "P4 P7 B9"),
            ("Proves C1,\nC2 and C3.", "C1 C2 C3"),
            ("Rows come back. Proves B7: the lease ran out.", "B7"),
            ("Proves B7\n\nA crash is a crash.", "B7"),
            ("Proves A1. Proves E1 (both tables).", "A1 E1"),
            ("Write `/// Proves B7.` or `Proves A1.` above it.", ""),
            ("Nothing is proved here.", ""),
        ] {
            assert_eq!(read(documentation), expected, "{documentation}");
        }
    }

    #[test]
    fn a_slip_is_named() {
        assert_eq!(
            read("Proves that it works."),
            "after `Proves`: `that` is not an id such as B7"
        );
        assert_eq!(read("Proves b7."), "after `Proves`: `b7` is not an id such as B7");
        assert_eq!(read("Proves ."), "`Proves` names nothing");
    }
}
