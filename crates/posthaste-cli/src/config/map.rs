//! Which table map, and where it is.

use std::fs;
use std::path::Path;

use posthaste_sql::TableMap;
use posthaste_sql::table::{BUILTIN_MAPS, BuiltinMap};

use super::problem::closest;

/// A table map with the text it was read from.
#[derive(Clone, Debug)]
pub struct NamedMap {
    /// The map.
    pub map: TableMap,
    /// As its author wrote it.
    pub toml: String,
    /// The tables it describes, where it ships with Posthaste.
    pub ddl: Option<&'static str>,
    /// How it is named on the command line, from the directory that the command was started in.
    pub argument: String,
}

impl NamedMap {
    /// The map of this name, or in the file of this path, which is relative to `base`. The error says what to give instead.
    pub fn find(given: &str, base: &Path) -> Result<Self, String> {
        if !is_path(given) {
            let builtin = BuiltinMap::find(given).ok_or_else(|| unknown(given))?;
            return Ok(Self {
                map: builtin.map().map_err(|error| error.to_string())?,
                toml: builtin.toml.to_owned(),
                ddl: Some(builtin.ddl),
                argument: given.to_owned(),
            });
        }
        let path = base.join(given);
        let toml = fs::read_to_string(&path).map_err(|error| {
            format!(
                "cannot read {}: {error}; give the path of a TOML file, or the name of a map that ships: {}",
                path.display(),
                names()
            )
        })?;
        let map = TableMap::from_toml(&toml).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            map,
            toml,
            ddl: None,
            argument: path.display().to_string(),
        })
    }
}

fn is_path(given: &str) -> bool {
    given.contains(['/', '\\'])
        || Path::new(given)
            .extension()
            .is_some_and(|extension| extension == "toml")
}

fn names() -> String {
    BUILTIN_MAPS.map(|builtin| builtin.name).join(", ")
}

fn unknown(given: &str) -> String {
    let meant = closest(given, &BUILTIN_MAPS.map(|builtin| builtin.name));
    let meant = meant.map(|name| format!("did you mean {name}? ")).unwrap_or_default();
    format!(
        "there is no map of this name; {meant}known are {}; for one of your own give the path of its TOML file, such as \
         ./outbox.toml",
        names()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_found_by_name_or_by_path() {
        assert_eq!(NamedMap::find("usage", Path::new("")).unwrap().map.name(), "usage");
        let directory = tempfile::tempdir().unwrap();
        fs::write(
            directory.path().join("mine.toml"),
            BuiltinMap::find("usage").unwrap().toml,
        )
        .unwrap();
        for given in ["mine.toml", "./mine.toml"] {
            let found = NamedMap::find(given, directory.path()).unwrap();
            assert!(found.ddl.is_none() && found.map.name() == "usage");
        }
    }

    #[test]
    fn what_is_not_found_or_not_read_says_what_to_give() {
        let problem = |given: &str, base: &Path| NamedMap::find(given, base).unwrap_err();
        let unknown = problem("usge", Path::new(""));
        assert!(
            unknown.contains("did you mean usage?") && unknown.contains("order-service"),
            "{unknown}"
        );
        assert!(problem("./none.toml", Path::new("")).contains("cannot read ./none.toml"));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("bad.toml"), "name = \"x\"\norder = 7\n").unwrap();
        let bad = problem("bad.toml", directory.path());
        assert!(bad.contains("bad.toml") && bad.contains("line 2"), "{bad}");
    }
}
