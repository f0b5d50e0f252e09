//! What the publisher suite needs to know about what a publisher publishes to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::{Message, Publisher};

/// A kind of trouble that a case of the publisher suite makes, or something else that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It refuses one message and takes others.
    Refuse,
    /// It may never answer, and the publisher has a time-out of its own.
    Silence,
    /// It may be unavailable for a while.
    Death,
    /// Code that may panic runs within the publisher.
    Panic,
    /// It may ask to wait, and the publisher waits if it has the time.
    Throttle,
    /// It takes no message above some size.
    Limit,
    /// It may be full.
    Full,
    /// It may stand beside another destination that is dead.
    Neighbour,
    /// [`Publisher::check`] asks it whether it is well.
    Check,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Trouble to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Answers nothing from now on.
    Silence,
    /// Is unavailable from now on.
    Death,
    /// Asks the next request to wait for so long.
    Throttle(Duration),
    /// Takes no more bytes from now on.
    Full,
}

/// What a publisher publishes to: a running receiver, a topic, a file. Implement it in the publisher's tests and add one
/// line:
///
/// ```ignore
/// posthaste_testkit::publisher_suite!(MyReceiver);
/// ```
///
/// Every case gets one of its own from [`Counterpart::fresh`]. Its messages have names such as `a#2`, the second of the lane
/// `a`; [`names_in`](crate::publishing::names_in) finds them in what arrived. Verbs without a result panic when they fail.
pub trait Counterpart: Sized {
    /// What it cannot do, and why. Cases that need it are left out; see
    /// [`publishing::left_out`](crate::publishing::left_out).
    fn lacks() -> &'static [(Ability, &'static str)];

    /// A new one for a case with these needs, to which nothing has been published; `None` where this machine has none,
    /// after saying so.
    fn fresh(needs: &[Ability]) -> impl Future<Output = Option<Self>>;

    /// The publisher under test, always the same one.
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// Where its messages go.
    fn topic(&self) -> String {
        "t".to_owned()
    }

    /// The names of the messages that arrived, in order within each lane.
    fn arrived(&self) -> impl Future<Output = Vec<String>>;

    /// The publisher's own time-out. Needed for [`Ability::Silence`] and [`Ability::Throttle`].
    fn answer_within(&self) -> Duration {
        unimplemented!("the publisher has no time-out")
    }

    /// Makes trouble.
    fn disturb(&self, disturbance: Disturbance) -> impl Future<Output = ()> {
        async move { unimplemented!("{disturbance:?} cannot happen here") }
    }

    /// Ends the trouble.
    fn recover(&self) -> impl Future<Output = ()> {
        async {}
    }

    /// The message in a form that is refused. Needed for [`Ability::Refuse`].
    fn refused(&self, _name: &str) -> Message {
        unimplemented!("nothing is refused here")
    }

    /// The message in a form at which code within the publisher panics. Needed for [`Ability::Panic`].
    fn panicking(&self, _name: &str) -> Message {
        unimplemented!("nothing panics here")
    }

    /// The message in a form that is too large. Needed for [`Ability::Limit`].
    fn too_large(&self, _name: &str) -> Message {
        unimplemented!("nothing is too large here")
    }

    /// A publisher to this counterpart and to a dead one beside it, and the topic of messages to the dead one. Needed for
    /// [`Ability::Neighbour`].
    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        unimplemented!("there is one destination")
    }
}
