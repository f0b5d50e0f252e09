//! How a column keeps its value.

use serde::{Deserialize, Serialize};

/// How a column keeps its value, whatever the database calls its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A UUID, in the database's own type or as text.
    Uuid,
    /// A UUID in sixteen bytes.
    UuidBytes,
    /// A whole number of any size.
    Integer,
    /// Text of any length.
    Text,
    /// JSON that is kept as it was written.
    Json,
    /// JSON that the database rewrites.
    Jsonb,
    /// Bytes.
    Bytes,
    /// True or false.
    Boolean,
    /// A moment, in the database's own type; text where it has none.
    Timestamptz,
    /// A date and time without a zone, in the map's zone.
    Timestamp,
    /// Seconds since 1970.
    EpochS,
    /// Milliseconds since 1970.
    EpochMs,
    /// Microseconds since 1970.
    EpochUs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Uuid,
        Self::UuidBytes,
        Self::Integer,
        Self::Text,
        Self::Json,
        Self::Jsonb,
        Self::Bytes,
        Self::Boolean,
        Self::Timestamptz,
        Self::Timestamp,
        Self::EpochS,
        Self::EpochMs,
        Self::EpochUs,
    ];

    /// The name in table maps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uuid => "uuid",
            Self::UuidBytes => "uuid_bytes",
            Self::Integer => "integer",
            Self::Text => "text",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Bytes => "bytes",
            Self::Boolean => "boolean",
            Self::Timestamptz => "timestamptz",
            Self::Timestamp => "timestamp",
            Self::EpochS => "epoch_s",
            Self::EpochMs => "epoch_ms",
            Self::EpochUs => "epoch_us",
        }
    }

    /// Whether it keeps a moment.
    pub fn is_time(self) -> bool {
        matches!(
            self,
            Self::Timestamptz | Self::Timestamp | Self::EpochS | Self::EpochMs | Self::EpochUs
        )
    }
}
