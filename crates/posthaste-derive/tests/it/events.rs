//! What the derived mapping makes of events.

use posthaste_core::event::{DecodeEvent, EventName};
use posthaste_core::type_name::TypeName;
use posthaste_core::{Event as _, IntoMessage, Message};
use posthaste_derive::Event;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Plain types: no derive, no name of a topic, no byte format.
mod domain {
    pub struct OrderId(pub u64);

    pub struct OrderCreated {
        pub order_id: OrderId,
        pub total: u32,
    }

    pub struct OrderPaid {
        pub order_id: OrderId,
    }

    pub struct StockDepleted {
        pub warehouse: String,
        pub sku: String,
    }
}

/// The edge of the application: how the domain's events look to others.
mod wire {
    use super::domain::{OrderCreated, OrderId, OrderPaid, StockDepleted};
    use super::{Event, Serialize};

    #[derive(Event)]
    #[event(crate = posthaste_core, aggregate = "Order", id_with = order_id)]
    pub enum ShopEvent {
        #[event(type = "acme.order.created.v1", payload = created)]
        Created(OrderCreated),
        #[event(type = "acme.order.paid.v2", payload = <OrderJson>::from)]
        Paid(OrderPaid),
        #[event(type = "acme.stock.depleted.v1", aggregate = "Product", id = sku, topic = "warehouse")]
        #[event(payload = StockDepleted::summary)]
        Depleted(Box<StockDepleted>),
    }

    trait HasOrder {
        fn order(&self) -> &OrderId;
    }

    impl HasOrder for OrderCreated {
        fn order(&self) -> &OrderId {
            &self.order_id
        }
    }

    impl HasOrder for OrderPaid {
        fn order(&self) -> &OrderId {
            &self.order_id
        }
    }

    fn order_id(event: &impl HasOrder) -> u64 {
        event.order().0
    }

    #[derive(Serialize)]
    struct OrderJson {
        order: u64,
    }

    impl From<&OrderPaid> for OrderJson {
        fn from(event: &OrderPaid) -> Self {
            Self {
                order: event.order_id.0,
            }
        }
    }

    fn created(event: &OrderCreated) -> impl Serialize {
        (event.order_id.0, event.total)
    }

    impl StockDepleted {
        fn summary(&self) -> &str {
            &self.warehouse
        }
    }
}

use domain::{OrderCreated, OrderId, OrderPaid, StockDepleted};
use wire::ShopEvent;

fn message(event: impl Into<ShopEvent>) -> Message {
    event.into().into_message().unwrap()
}

fn payload(message: &Message) -> Value {
    serde_json::from_slice(&message.payload).unwrap()
}

/// Proves C1, C3.
#[test]
fn a_plain_domain_event_becomes_a_message_with_its_name_topic_and_key() {
    let created = message(OrderCreated {
        order_id: OrderId(42),
        total: 7,
    });
    assert_eq!(created.event_type.as_deref(), Some("acme.order.created.v1"));
    assert_eq!(created.topic, "order-events");
    assert_eq!(created.ordering_key.as_deref(), Some("42"));
    assert_eq!(created.aggregate_type.as_deref(), Some("Order"));
    assert_eq!(created.aggregate_id.as_deref(), Some("42"));
    assert_eq!(created.content_type, "application/json");
    assert_eq!(payload(&created), serde_json::json!([42, 7]));
}

#[test]
fn a_variant_may_differ_from_what_its_enum_says() {
    let depleted = message(Box::new(StockDepleted {
        warehouse: "north".to_owned(),
        sku: "s-1".to_owned(),
    }));
    assert_eq!(depleted.topic, "warehouse");
    assert_eq!(depleted.aggregate_type.as_deref(), Some("Product"));
    assert_eq!(depleted.aggregate_id.as_deref(), Some("s-1"));
    assert_eq!(payload(&depleted), "north");

    let paid = message(OrderPaid { order_id: OrderId(1) });
    assert_eq!(
        (paid.topic.as_str(), paid.aggregate_type.as_deref()),
        ("order-events", Some("Order"))
    );
    assert_eq!(payload(&paid), serde_json::json!({"order": 1}));
}

/// Proves C1, C3.
#[test]
fn the_list_of_type_names_is_complete_and_well_formed() {
    assert_eq!(
        ShopEvent::TYPE_NAMES,
        ["acme.order.created.v1", "acme.order.paid.v2", "acme.stock.depleted.v1"]
    );
    assert!(ShopEvent::TYPE_NAMES.iter().all(|name| TypeName::parse(name).is_ok()));
}

#[derive(Event, Serialize)]
#[event(crate = ::posthaste_core, type = "acme.user.renamed.v1", aggregate = "User", id = user)]
struct UserRenamed<'a, T: Serialize> {
    user: &'a str,
    name: T,
}

#[test]
fn a_struct_may_be_an_event_by_itself() {
    let event = UserRenamed { user: "u-1", name: 5 };
    assert_eq!(event.topic(), "user-events");
    let message = event.into_message().unwrap();
    assert_eq!(message.ordering_key.as_deref(), Some("u-1"));
    assert_eq!(payload(&message), serde_json::json!({"user": "u-1", "name": 5}));
    assert_eq!(UserRenamed::<u8>::TYPE_NAMES, ["acme.user.renamed.v1"]);
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Job", id = 0)]
enum JobEvent {
    #[event(type = "acme.job.started.v1")]
    Started(Job),
    #[event(type = "acme.job.ended.v1")]
    Ended(Job),
    #[event(type = "acme.job.failed.v1")]
    Failed(Failure),
}

#[derive(Serialize)]
struct Job(u8);

#[derive(Serialize)]
struct Failure(u8, &'static str);

/// A `From<Job>` written by hand compiles only because none was generated.
impl From<Job> for JobEvent {
    fn from(job: Job) -> Self {
        Self::Ended(job)
    }
}

#[test]
fn a_type_that_two_variants_wrap_has_no_conversion() {
    let events = [JobEvent::Started(Job(1)), Job(1).into(), Failure(1, "lost").into()];
    let names = events.map(|event| event.type_name());
    assert_eq!(names.as_slice(), JobEvent::TYPE_NAMES);
}

/// An enum whose events can be read back, beside [`ShopEvent`], whose cannot.
#[derive(Debug, PartialEq, Event)]
#[event(crate = posthaste_core, aggregate = "Product", id = sku)]
enum StockEvent {
    #[event(type = "acme.stock.received.v1")]
    Received(StockReceived),
    #[event(type = "acme.stock.lost.v2", topic = "losses")]
    Lost(StockLost),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StockReceived {
    sku: String,
    pieces: u32,
}

#[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
#[event(crate = posthaste_core, type = "acme.stock.lost.v1", aggregate = "Product", id = sku)]
struct StockLost {
    sku: String,
}

#[test]
fn an_event_is_read_back_as_what_its_type_name_says() {
    let lost = || StockLost { sku: "s-1".to_owned() };
    let received = StockReceived {
        sku: "s-1".to_owned(),
        pieces: 3,
    };
    for event in [StockEvent::Received(received), StockEvent::Lost(lost())] {
        let payload = event.payload().unwrap();
        assert_eq!(StockEvent::decode(event.type_name(), &payload).unwrap(), event);
    }
    let payload = lost().payload().unwrap();
    assert_eq!(StockLost::decode("acme.stock.lost.v1", &payload).unwrap(), lost());
    let named = |event: &EventName| (event.type_name, event.topic);
    let events: Vec<_> = StockEvent::EVENTS.iter().chain(StockLost::EVENTS).map(named).collect();
    assert_eq!(
        events,
        [
            ("acme.stock.received.v1", "stock-events"),
            ("acme.stock.lost.v2", "losses"),
            ("acme.stock.lost.v1", "stock-events"),
        ]
    );
}

#[test]
fn what_has_another_name_or_form_is_refused_with_the_reason() {
    let text = |name: &str, payload: &str| StockEvent::decode(name, payload.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        text("acme.stock.sold.v1", "{}"),
        "there is no event with the type name acme.stock.sold.v1"
    );
    let missing = text("acme.stock.received.v1", r#"{"sku": "s-1"}"#);
    assert!(missing.contains("missing field `pieces`"), "{missing}");
}
