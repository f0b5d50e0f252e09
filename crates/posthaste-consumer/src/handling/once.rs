//! What counts as the same effect.

use std::fmt;

use super::error::HandlerError;
use super::received::Received;

/// By which key the inbox remembers that an event was handled.
pub struct Once<T> {
    by: By<T>,
}

enum By<T> {
    Event,
    Aggregate { action: String },
    Key(MakeKey<T>),
}

type MakeKey<T> = Box<dyn Fn(&Received<T>) -> String + Send + Sync>;

/// What the inbox is asked, and how the log calls it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EffectKey {
    pub(crate) key: String,
    pub(crate) action: String,
}

impl<T> Once<T> {
    /// Once per event, by its [identity](Received::identity): however often it is delivered.
    pub fn per_event() -> Self {
        Self { by: By::Event }
    }

    /// Once per aggregate and action, whichever event asks for it: an order is counted as sold once, even if it was
    /// published as paid twice.
    ///
    /// The key is `{aggregate_type}/{aggregate_id}/{action}`. An event without an aggregate goes to the dead-letter
    /// topic.
    pub fn per_aggregate(action: impl Into<String>) -> Self {
        Self {
            by: By::Aggregate { action: action.into() },
        }
    }

    /// Once per key of your choice. It is a key among all keys of this consumer, so begin or end it with what it is for.
    ///
    /// ```
    /// # use posthaste_consumer::{Once, Received};
    /// # struct ProductViewed { product_id: i64 }
    /// // Repeated views count, repeated deliveries do not.
    /// let views = Once::by(|event: &Received<ProductViewed>| format!("{}_{}", event.payload.product_id, event.id));
    /// ```
    pub fn by(key: impl Fn(&Received<T>) -> String + Send + Sync + 'static) -> Self {
        Self {
            by: By::Key(Box::new(key)),
        }
    }

    pub(crate) fn key(&self, event: &Received<T>) -> Result<EffectKey, HandlerError> {
        match &self.by {
            By::Event => Ok(EffectKey {
                key: event.identity(),
                action: "event".to_owned(),
            }),
            By::Aggregate { action } => {
                let (Some(kind), Some(id)) = (&event.aggregate_type, &event.aggregate_id) else {
                    return Err(HandlerError::permanent(format!(
                        "the event has no aggregate, but {action} happens once per aggregate; let the producer set \
                         aggregate type and id, or register the handler with Once::per_event"
                    )));
                };
                Ok(EffectKey {
                    key: format!("{}/{id}/{}", without_slash(kind), without_slash(action)),
                    action: action.clone(),
                })
            }
            By::Key(key) => {
                let key = key(event);
                Ok(EffectKey {
                    action: key.clone(),
                    key,
                })
            }
        }
    }
}

/// So that no two aggregates share a key: only the id, in the middle, may have slashes.
fn without_slash(part: &str) -> String {
    part.replace('%', "%25").replace('/', "%2F")
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::per_event()
    }
}

impl<T> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            By::Event => f.write_str("Once::per_event()"),
            By::Aggregate { action } => write!(f, "Once::per_aggregate({action:?})"),
            By::Key(_) => f.write_str("Once::by(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(aggregate: Option<(&str, &str)>) -> Received<i64> {
        Received {
            id: "e1".to_owned(),
            event_type: "acme.product.viewed.v1".to_owned(),
            source: Some("shop".to_owned()),
            subject: None,
            aggregate_type: aggregate.map(|(kind, _)| kind.to_owned()),
            aggregate_id: aggregate.map(|(_, id)| id.to_owned()),
            tenant: None,
            time: None,
            headers: posthaste_core::message::Headers::new(),
            payload: 7,
            key: None,
            topic: "product-events".to_owned(),
            partition: 0,
            offset: 0,
            attempt: 1,
        }
    }

    fn key(once: &Once<i64>, aggregate: Option<(&str, &str)>) -> String {
        once.key(&event(aggregate)).unwrap().key
    }

    #[test]
    fn keys_name_the_effect() {
        assert_eq!(key(&Once::default(), None), "shop#e1");
        let sales = Once::per_aggregate("SALES_COUNT_INCREASED");
        assert_eq!(key(&sales, Some(("Order", "42"))), "Order/42/SALES_COUNT_INCREASED");
        let views = Once::by(|event: &Received<i64>| format!("{}_{}", event.payload, event.id));
        assert_eq!(key(&views, None), "7_e1");
    }

    #[test]
    fn no_two_events_share_a_key() {
        let identity = |source: Option<&str>, id: &str| {
            let event = event(None);
            let (source, id) = (source.map(str::to_owned), id.to_owned());
            Received { id, source, ..event }.identity()
        };
        assert_eq!(identity(Some("https://shop/x"), "1"), "https:%2F%2Fshop%2Fx#1");
        let events = [
            (Some("shop"), "1"),
            (Some("mail"), "1"),
            (None, "1"),
            (Some(""), "1"),
            (None, "shop#1"),
            (Some("shop#1"), ""),
            (Some("shop%231"), ""),
            (Some("Order"), "42/SOLD"),
        ];
        let keys: std::collections::BTreeSet<_> = events.iter().map(|(source, id)| identity(*source, id)).collect();
        assert_eq!(keys.len(), events.len(), "{keys:?}");
        assert!(
            keys.iter().all(|key| !key.contains('/')),
            "none is that of an aggregate"
        );
    }

    #[test]
    fn no_two_aggregates_share_a_key() {
        let count = Once::per_aggregate("A");
        let keys = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c")].map(|aggregate| key(&count, Some(aggregate)));
        assert_eq!(keys, ["a/b/c/A", "a%2Fb/c/A", "a%252Fb/c/A"]);
        assert_ne!(
            key(&Once::per_aggregate("B/A"), Some(("a", "x"))),
            key(&count, Some(("a", "x/B")))
        );
    }

    #[test]
    fn an_event_without_an_aggregate_is_refused_with_the_remedy() {
        let error = Once::per_aggregate("A").key(&event(None)).unwrap_err();
        assert!(error.is_permanent());
        assert!(error.to_string().contains("Once::per_event"), "{error}");
    }
}
