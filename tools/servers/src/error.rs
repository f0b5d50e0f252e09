use std::{io, path::PathBuf};

/// Why a private server could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server's programs are not on this machine.
    #[error("no {server} programs found (looked in {looked_in}); install them or set {variable}")]
    NotInstalled {
        /// The product that is missing.
        server: &'static str,
        /// Every place that was tried.
        looked_in: String,
        /// The environment variable that points at them.
        variable: &'static str,
    },

    /// Root may not run the server, and the account that may is missing.
    #[error("the server refuses to run as root and there is no user `{0}` to run it as")]
    NoAccount(&'static str),

    /// Neither the directory asked for nor the system's temporary directory can hold the server.
    #[error("user `{user}` cannot use {} nor {}: every directory above must allow it to pass (chmod o+x)", asked.display(), fallback.display())]
    Unreachable {
        /// The account the server runs under.
        user: String,
        /// The directory the caller asked for.
        asked: PathBuf,
        /// The directory tried instead.
        fallback: PathBuf,
    },

    /// No loopback port was free, or each one was taken by somebody else before the server had it.
    #[error("no free loopback port was found")]
    NoFreePort,

    /// Another process listens on the port the server is bound to use.
    #[error("port {0} was taken by another process")]
    PortTaken(u16),

    /// A program of the server failed.
    #[error("`{command}` failed: {output}")]
    Failed {
        /// The command line.
        command: String,
        /// What it printed, and the end of the server's log.
        output: String,
    },

    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted.
        action: String,
        /// The operating system's answer.
        source: io::Error,
    },
}

impl Error {
    /// Adapts an `io::Error` in `map_err`, naming what was attempted.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
