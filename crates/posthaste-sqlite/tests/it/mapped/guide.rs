//! The worked example of the guide to table maps.

use posthaste_core::store::{ProducerStore, RelayStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_sql::TableMap;
use posthaste_testkit::{RecordingPublisher, drain};

use super::tables::MappedTable;

const GUIDE: &str = include_str!("../../../../../docs/table-maps.md");

/// The blocks of a language, without their indentation.
fn blocks(language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in GUIDE.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)) {
        match &mut block {
            None if line == format!("```{language}") => block = Some(String::new()),
            None => {}
            Some(_) if line == "```" => blocks.extend(block.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    blocks
}

#[tokio::test]
async fn the_example_of_the_guide_is_served_as_it_stands_there() {
    let [sketch, map] = &blocks("toml")[..] else {
        panic!("two maps in the guide");
    };
    TableMap::from_toml(sketch).unwrap();
    let mapped = MappedTable::new(&blocks("sql").concat(), TableMap::from_toml(map).unwrap()).await;
    mapped
        .execute(r#"insert into "Outgoing" ("Customer", "Body") values ('c', 'one')"#)
        .await;
    let message = Message::new("shop-events", "two").key("c");
    let options = OutboxOptions::default();
    mapped.store.enqueue_and_commit(&options, vec![message]).await.unwrap();
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(broker.ids(), [1.into(), 2.into()]);
    assert_eq!(
        mapped
            .number(r#"select count(*) from "Outgoing" where "State" = 3"#)
            .await,
        2
    );
    assert_eq!(mapped.store.stats("default").await.unwrap().pending, 0);
}
