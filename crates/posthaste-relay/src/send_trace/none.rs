//! Nothing is remembered.

use std::time::SystemTime;

use posthaste_core::Message;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendTrace {}

#[expect(clippy::unused_self, reason = "the other one has something in it")]
impl SendTrace {
    pub(crate) fn of(_: &Message) -> Self {
        Self {}
    }

    pub(crate) fn attempt_begins(&mut self) {}

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "with traces there is something to refer to"
    )]
    pub(crate) fn is_traced(&self) -> bool {
        false
    }

    pub(crate) fn sent_at(&mut self, _: SystemTime) {}
}
