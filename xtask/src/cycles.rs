//! No file of a crate imports, by way of others, itself: such files can only be read, moved and changed all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use crate::workspace;

pub(crate) const FIX: &str = "move what two files need of each other to a third, below both";

/// The crates that are held to it.
const CRATES: [&str; 4] = [
    "posthaste-consumer",
    "posthaste-kafka",
    "posthaste-publishers",
    "posthaste-relay",
];

/// A module by the names that lead to it; none for the root.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Whether all of it holds; says what does not.
pub(crate) fn none() -> bool {
    let faults = CRATES.iter().filter_map(|name| fault(name).transpose());
    let faults: Vec<_> = faults
        .map(|fault| fault.unwrap_or_else(|error| format!("{error:#}")))
        .collect();
    for fault in &faults {
        eprintln!("{fault}");
    }
    faults.is_empty()
}

fn fault(name: &str) -> anyhow::Result<Option<String>> {
    let mut files = BTreeMap::new();
    let source = workspace::root().join("crates").join(name).join("src");
    read(&source, &Module::new(), &mut files)?;
    let cycle = cycle(&imports(files));
    Ok(cycle.map(|cycle| format!("{name}: files import each other in a circle: {cycle}")))
}

/// The tokens of every module that has a file of its own. Tests may import whom they like.
fn read(directory: &Path, module: &Module, files: &mut BTreeMap<Module, TokenStream>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let own = match name.as_str() {
            "tests" => continue,
            "lib" | "mod" => module.clone(),
            _ => [module.clone(), vec![name]].concat(),
        };
        if path.is_dir() {
            read(&path, &own, files)?;
            continue;
        }
        let tokens = fs::read_to_string(&path)?.parse();
        let tokens = tokens.map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
        files.insert(own, tokens);
    }
    Ok(())
}

/// Which file imports which.
fn imports(files: BTreeMap<Module, TokenStream>) -> Imports {
    let known: BTreeSet<Module> = files.keys().cloned().collect();
    let of = |(module, tokens): (Module, TokenStream)| {
        let mut paths = Vec::new();
        find_paths(tokens, &mut paths);
        let targets = paths.iter().filter_map(|path| target(&module, path, &known));
        let targets = targets.filter(|target| *target != module).collect();
        (module, targets)
    };
    files.into_iter().map(of).collect()
}

/// The file that a path leads to, if it is one of this crate.
fn target(module: &Module, path: &[String], known: &BTreeSet<Module>) -> Option<Module> {
    let mut full = module.clone();
    for (place, name) in path.iter().enumerate() {
        match name.as_str() {
            "crate" => full.clear(),
            "super" => drop(full.pop()),
            "self" => {}
            // A path without one of those leads to a child or out of the crate.
            name if place == 0 && !known.contains(&[&full[..], &[name.to_owned()]].concat()) => return None,
            name => full.push(name.to_owned()),
        }
    }
    while !known.contains(&full) {
        full.pop()?;
    }
    Some(full)
}

/// Every path that begins with `crate`, `super`, `self` or `use`.
fn find_paths(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut last = String::new();
    for (place, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(_) if last == "tests" => {}
            TokenTree::Group(group) => find_paths(group.stream(), paths),
            TokenTree::Ident(name) if last == "use" || begins_path(name) && is_colon(tokens.get(place + 1)) => {
                follow(&tokens[place..], Vec::new(), paths);
            }
            _ => {}
        }
        last = token.to_string();
    }
}

fn begins_path(name: &Ident) -> bool {
    name == "crate" || name == "super" || name == "self"
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
}

fn follow(tokens: &[TokenTree], mut path: Vec<String>, paths: &mut Vec<Vec<String>>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) if name != "as" => path.push(name.to_string()),
            mark if is_colon(Some(mark)) => {}
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
                inner
                    .split(is_comma)
                    .for_each(|branch| follow(branch, path.clone(), paths));
                return;
            }
            _ => break,
        }
    }
    paths.push(path);
}

/// The first circle, as `a → b → a`.
fn cycle(imports: &Imports) -> Option<String> {
    let mut done = BTreeSet::new();
    imports
        .keys()
        .find_map(|module| visit(module, imports, &mut Vec::new(), &mut done))
}

fn visit<'a>(
    module: &'a Module,
    imports: &'a Imports,
    way: &mut Vec<&'a Module>,
    done: &mut BTreeSet<&'a Module>,
) -> Option<String> {
    if let Some(start) = way.iter().position(|passed| *passed == module) {
        let names = way[start..].iter().chain([&module]).map(|module| name(module));
        return Some(names.collect::<Vec<_>>().join(" → "));
    }
    if done.contains(module) {
        return None;
    }
    way.push(module);
    let found = imports[module].iter().find_map(|next| visit(next, imports, way, done));
    way.pop();
    done.insert(module);
    found
}

fn name(module: &Module) -> String {
    if module.is_empty() {
        return "lib".to_owned();
    }
    module.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle_of(files: &[(&str, &str)]) -> Option<String> {
        let file = |(name, text): &(&str, &str)| {
            let module = name.split("::").filter(|part| *part != "lib");
            (module.map(str::to_owned).collect(), text.parse().unwrap())
        };
        cycle(&imports(files.iter().map(file).collect()))
    }

    #[test]
    fn a_circle_is_named() {
        let files = [
            ("lib", "mod a; mod b; mod c;"),
            ("a", "use std::fmt; use crate::{b::{self, B}, c};"),
            ("b", "fn f() { crate::c::g(); }"),
            ("c", "use super::a::A as Other;"),
        ];
        assert_eq!(cycle_of(&files).as_deref(), Some("a → b → c → a"));
    }

    #[test]
    fn a_parent_and_its_child_may_make_one_too() {
        let files = [("a", "mod b; pub use b::B;"), ("a::b", "use super::A;")];
        assert_eq!(cycle_of(&files).as_deref(), Some("a → a::b → a"));
    }

    #[test]
    fn what_points_one_way_is_none() {
        let files = [
            ("lib", "pub use a::A;"),
            ("a", "use crate::b::B; use b_of_another_crate::X;"),
            ("b", "/// See crate::a::A.\n#[cfg(test)] mod tests { use crate::a; }"),
        ];
        assert_eq!(cycle_of(&files), None);
    }

    #[test]
    fn the_project_has_none() {
        for name in CRATES {
            assert_eq!(fault(name).unwrap(), None);
        }
    }
}
