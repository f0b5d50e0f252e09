//! How much to measure.

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) quick: bool,
    /// How often each run is repeated.
    pub(crate) rounds: u32,
}

impl Extent {
    /// One of two, by whether the run is a quick one.
    pub(crate) fn pick<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}
