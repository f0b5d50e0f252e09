//! No spans.

use posthaste_core::Message;

use crate::reported::Reported;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendTrace {}

#[expect(clippy::unused_self, reason = "the other one has something in it")]
impl SendTrace {
    pub(crate) fn of(_: &Message) -> Self {
        Self {}
    }

    pub(crate) fn attempt_begins(&mut self) {}

    pub(crate) fn is_sent(&mut self) {}
}

#[derive(Debug)]
pub(crate) struct SendSpans;

#[expect(clippy::unused_self, reason = "the other one has something in it")]
impl SendSpans {
    pub(crate) fn new(_: &str, _: &str) -> Self {
        Self
    }

    pub(crate) fn attempted(&self, _: &Reported) {}
}
