//! The maps that ship with Posthaste.

use super::{MapError, TableMap};

/// A map that ships with Posthaste, for the outboxes of five published designs.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinMap {
    /// Its name.
    pub name: &'static str,
    /// The map.
    pub toml: &'static str,
    /// The tables it describes, as their owners create them.
    pub ddl: &'static str,
}

macro_rules! builtin {
    ($($name:literal),* $(,)?) => {
        [$(BuiltinMap {
            name: $name,
            toml: include_str!(concat!("../../maps/", $name, ".toml")),
            ddl: include_str!(concat!("../../maps/", $name, ".sql")),
        }),*]
    };
}

/// All of them.
pub const BUILTIN_MAPS: [BuiltinMap; 5] = builtin!("commerce", "donation", "logistics", "order-service", "usage");

impl BuiltinMap {
    /// The one of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        BUILTIN_MAPS.iter().find(|builtin| builtin.name == name)
    }

    /// The one of this name, or an error that lists the names there are.
    pub fn named(name: &str) -> Result<&'static Self, MapError> {
        let names = || BUILTIN_MAPS.map(|builtin| builtin.name).join(", ");
        Self::find(name).ok_or_else(|| MapError {
            field: "name".to_owned(),
            problem: format!("no map called `{name}` ships with Posthaste; there are {}", names()),
            line: None,
        })
    }

    /// The map, ready for a store.
    pub fn map(&self) -> Result<TableMap, MapError> {
        TableMap::from_toml(self.toml)
    }
}
