//! No spans.

use crate::reported::Reported;

#[derive(Debug)]
pub(crate) struct SendSpans;

#[expect(clippy::unused_self, reason = "the other one has something in it")]
impl SendSpans {
    pub(crate) fn new(_: &str, _: &str) -> Self {
        Self
    }

    pub(crate) fn attempted(&self, _: &Reported) {}
}
