//! The history of a schema: a store's migration files, oldest first.

use posthaste_core::store::Migration;

/// A migration's name and its SQL, as a store embeds it.
pub type File = (&'static str, &'static str);

/// The steps of a history, each finished by `finish` and with a last statement that records it.
pub fn steps(files: &[File], finish: impl Fn(&str) -> String) -> Vec<Migration> {
    steps_from(1, files, finish)
}

/// The same for a history that shares its table with another one, and is counted from elsewhere.
pub fn steps_from(first: i64, files: &[File], finish: impl Fn(&str) -> String) -> Vec<Migration> {
    (first..)
        .zip(files)
        .map(|(version, (name, sql))| {
            // Part of the text, so that what `--dry-run` prints can be run by hand.
            let record = format!("insert into \"@migrations\" (version, name) values ({version}, '{name}');\n");
            Migration {
                version,
                name,
                sql: finish(&format!("{sql}\n{record}")),
            }
        })
        .collect()
}

/// Those of the steps that were not applied yet, in order.
pub fn missing(all: Vec<Migration>, applied: &[i64]) -> Vec<Migration> {
    let is_missing = |step: &Migration| !applied.contains(&step.version);
    all.into_iter().filter(is_missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_records_itself_and_is_applied_once() {
        let all = steps(&[("a", "create a;"), ("b", "create b;")], |sql| sql.replace('@', "my_"));
        assert_eq!(
            all[1].sql,
            "create b;\ninsert into \"my_migrations\" (version, name) values (2, 'b');\n"
        );
        let missing = missing(all, &[1]);
        assert_eq!(missing.iter().map(|step| step.version).collect::<Vec<_>>(), [2]);
    }
}
