use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    process::Command,
};

use crate::Result;

/// What MariaDB and MySQL do differently: which programs there are, and how a new server is set up.
pub trait Programs: Debug + Sized {
    /// What the names of its directories begin with.
    const PREFIX: &str;

    /// The server.
    const DAEMON: &str;

    /// Finds the programs on this machine.
    fn find() -> Result<Self>;

    /// The path of one program.
    fn program(&self, name: &str) -> PathBuf;

    /// A command that runs one of the programs.
    fn command(&self, name: &str) -> Command {
        Command::new(self.program(name))
    }

    /// The section of the configuration that the server reads, and what must stand there.
    fn configuration(&self) -> (&'static str, Vec<(&'static str, String)>);

    /// A command that fills a new data directory. What it needs besides the configuration is written into `home`.
    fn install(&self, home: &Path) -> Result<InstallCommand>;
}

/// Which program fills a data directory, and its arguments.
#[derive(Debug)]
pub struct InstallCommand {
    pub(crate) program: &'static str,
    pub(crate) arguments: Vec<String>,
}
