use std::collections::BTreeMap;

use serde::Deserialize;

use super::id::Id;

/// All that the project promises, from `requirements.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Promises {
    #[serde(rename = "section")]
    pub(super) sections: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) lines: BTreeMap<Id, String>,
}

impl Promises {
    pub(super) fn load() -> Self {
        toml::from_str(include_str!("../../requirements.toml")).expect("a test reads the file")
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        self.sections.iter().any(|section| section.lines.contains_key(&id))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        self.sections.iter().flat_map(|section| section.lines.keys().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_every_section_is_there() {
        let promises = Promises::load();
        for (letter, count) in [('A', 10), ('B', 18), ('C', 18), ('D', 10), ('E', 8), ('P', 35)] {
            for number in 1..=count {
                let id = format!("{letter}{number}");
                assert!(promises.contains(id.parse().unwrap()), "{id}");
            }
        }
        assert_eq!(promises.ids().count(), 64 + 35);
    }
}
