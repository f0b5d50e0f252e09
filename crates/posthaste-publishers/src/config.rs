//! The settings of all publishers as one type, as configuration files have them.

use std::sync::Arc;

use posthaste_core::Publisher;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::options::{InvalidOption, PublisherContext};

/// Where the settings of a publisher are read from.
pub trait Settings {
    /// What went wrong.
    type Error;

    /// Reads them as this type.
    ///
    /// # Errors
    ///
    /// If they are not of this type.
    fn read<T: DeserializeOwned>(&self) -> Result<T, Self::Error>;
}

/// Why there is no publisher of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchKind {
    /// There is none.
    Unknown,
    /// The program was built without it.
    LeftOut,
}

macro_rules! publishers {
    ($($(#[$doc:meta])* $kind:literal $variant:ident($options:ty);)*) => {
        /// The settings of any publisher; `kind` says which.
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[allow(clippy::large_enum_variant, reason = "there are a few of them in a process")]
        #[serde(tag = "kind", rename_all = "lowercase")]
        #[non_exhaustive]
        pub enum PublisherConfig {
            $($(#[$doc])* #[cfg(feature = $kind)] $variant($options),)*
        }

        impl PublisherConfig {
            /// All kinds, also those that this program was built without.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// Reads the settings of a publisher of this kind, which have no `kind` among them. In contrast to
            /// `Deserialize`, errors name the field.
            ///
            /// # Errors
            ///
            /// If there is no such kind; within, if the settings are not those of this kind.
            #[allow(unused_variables, reason = "a program may be built without any publisher that has settings")]
            pub fn read<S: Settings>(kind: &str, settings: &S) -> Result<Result<Self, S::Error>, NoSuchKind> {
                match kind {
                    $(#[cfg(feature = $kind)] $kind => Ok(settings.read().map(Self::$variant)),)*
                    _ if Self::KINDS.contains(&kind) => Err(NoSuchKind::LeftOut),
                    _ => Err(NoSuchKind::Unknown),
                }
            }

            /// Its kind.
            pub fn kind(&self) -> &'static str {
                match *self { $(#[cfg(feature = $kind)] Self::$variant(_) => $kind,)* }
            }

            /// See [`PublisherOptions::validate`](crate::options::PublisherOptions::validate).
            ///
            /// # Errors
            ///
            /// Names the setting, with a remedy.
            #[allow(unused_variables, reason = "a program may be built without any publisher that has settings")]
            pub fn validate(&self, context: &PublisherContext) -> Result<(), InvalidOption> {
                match *self {
                    $(#[cfg(feature = $kind)] Self::$variant(ref options) => {
                        crate::options::PublisherOptions::validate(options, context)
                    })*
                }
            }

            /// See [`PublisherOptions::build`](crate::options::PublisherOptions::build).
            ///
            /// # Errors
            ///
            /// Names the setting that cannot work, with a remedy.
            #[allow(unused_variables, reason = "a program may be built without any publisher that has settings")]
            pub fn build(self, context: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption> {
                match self {
                    $(#[cfg(feature = $kind)] Self::$variant(options) => {
                        crate::options::PublisherOptions::build(options, context)
                    })*
                }
            }
        }
    };
}

publishers! {
    /// One line of JSON per message on standard output.
    "stdout" Stdout(crate::stdout::StdoutOptions);
    /// One line of JSON per message in a file.
    "file" File(crate::file::FileOptions);
    /// One log event per message.
    "log" Log(crate::log::LogOptions);
    /// One record per message in Kafka.
    "kafka" Kafka(crate::kafka::KafkaOptions);
    /// Requests to an address.
    "http" Http(crate::http::HttpOptions);
}
