//! What every publisher must do, as cases that run on any [`Counterpart`].
//!
//! A case is a public async function in one of the modules here, named as the sentence that it proves. To add one, write it
//! and put its name on the list in `cases.rs`, with what it needs of a counterpart.

mod cases;
pub mod ending;
pub mod order;
mod scene;
pub mod trouble;

use std::fmt::Write as _;

pub use self::cases::{Case, cases};
pub use self::scene::Scene;
use crate::counterpart::Counterpart;
use posthaste_core::Message;

/// Runs one case on a counterpart of its own, if it is for it.
#[doc(hidden)]
pub async fn run<C: Counterpart>(name: &str, case: impl AsyncFnOnce(&Scene<C>)) {
    let mut all = cases().into_iter();
    let case_of = all.find(|case| case.name == name).expect("it is on the list");
    if let Some(reason) = refuses::<C>(&case_of) {
        println!("not for this counterpart: {name} {reason}");
        return;
    }
    let Some(counterpart) = C::fresh(&case_of.needs).await else {
        return;
    };
    let scene = Scene::new(counterpart);
    case(&scene).await;
    scene.end().await;
}

/// The cases that are not for a counterpart, each with what it lacks and why, below a line that counts the others. Kept as a
/// snapshot, it shows when a case is no longer run.
pub fn left_out<C: Counterpart>() -> String {
    let cases = cases();
    let mut lines = String::new();
    let mut run = 0;
    for case in &cases {
        match refuses::<C>(case) {
            None => run += 1,
            Some(reason) => {
                let _ = writeln!(lines, "{} {reason}", case.name);
            }
        }
    }
    format!("{run} of {} cases run\n{lines}", cases.len())
}

fn refuses<C: Counterpart>(case: &Case) -> Option<String> {
    let mut lacks = C::lacks().iter();
    let (ability, reason) = lacks.find(|(ability, _)| case.needs.contains(ability))?;
    Some(format!("[{ability}: {reason}]"))
}

/// The message with this name: its lane stands before the `#`. `more` goes into the payload too.
pub fn message(topic: &str, name: &str, more: &str) -> Message {
    let payload = format!("{{\"suite\":\"{name}\",\"more\":\"{more}\"}}");
    Message::new(topic, payload).key(lane_of(name))
}

/// The names of messages in what arrived, in whatever way the payload was quoted.
pub fn names_in(text: &str) -> Vec<String> {
    let plain: String = text
        .chars()
        .filter(|&letter| letter != '\\' && !letter.is_whitespace())
        .collect();
    let names = plain.split("\"suite\":\"").skip(1);
    names
        .filter_map(|rest| rest.split_once('"'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn lane_of(name: &str) -> &str {
    name.split_once('#').map_or(name, |(lane, _)| lane)
}
