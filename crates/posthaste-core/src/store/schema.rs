//! The schema's verbs.

use async_trait::async_trait;

use super::StoreError;

/// One step of a schema's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its place, from 1.
    pub version: i64,
    /// What it does.
    pub name: &'static str,
    /// The finished SQL.
    pub sql: String,
}

/// The schema's verbs.
///
/// # Contract
/// - **migrate** applies what is missing, each step once, also when several processes start at the same moment; run
///   again it does nothing.
#[async_trait]
pub trait SchemaStore: Send + Sync + 'static {
    /// All steps that this version knows.
    fn migrations(&self) -> Vec<Migration>;

    /// The versions that were applied; none if the tables are not there.
    async fn applied(&self) -> Result<Vec<i64>, StoreError>;

    /// Applies what is missing and returns it.
    async fn migrate(&self) -> Result<Vec<Migration>, StoreError>;

    /// Every statement that the store runs, by name, finished with the names of its table map.
    fn statements(&self) -> Vec<(&'static str, String)>;
}
