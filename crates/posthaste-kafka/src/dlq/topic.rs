//! One dead-letter topic: what lies in it, and what of that is open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::error::DlqError;
use super::group::group_of;
use super::marker;
use super::progress::Progress;
use super::reader::{Page, Reader};
use super::record::DeadLetterRecord;
use super::selection::Selection;
use crate::cluster::{Cluster, ClusterMetadata, ErrorRecorder};
use crate::connection::Connection;
use crate::dead_letter;
use crate::error::Explanation;

/// Records of one page.
pub(super) const PAGE_SIZE: usize = 100;

/// A dead-letter topic.
#[derive(Clone)]
pub struct DeadLetterTopic {
    pub(super) cluster: Cluster,
    pub(super) name: String,
    pub(super) partitions: Vec<i32>,
    /// The client reads one range at a time.
    reading: Arc<Mutex<()>>,
}

impl fmt::Debug for DeadLetterTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetterTopic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

pub(super) fn names(metadata: &ClusterMetadata) -> Vec<String> {
    let topics = metadata.topics.iter().map(|topic| topic.name.clone());
    let mut names: Vec<_> = topics.filter(|name| dead_letter::origin_of(name).is_some()).collect();
    names.sort();
    names
}

pub(super) fn partitions_of(topic: &str, metadata: &ClusterMetadata) -> Vec<i32> {
    let seen = metadata.topic(topic).into_iter().flat_map(|topic| &topic.partitions);
    let mut partitions: Vec<_> = seen.map(|partition| partition.id).collect();
    partitions.sort_unstable();
    partitions
}

/// The lowest offset of each partition, and the one above its highest.
pub(super) async fn bounds(
    cluster: &Cluster,
    topic: &str,
    partitions: &[i32],
) -> Result<BTreeMap<i32, (i64, i64)>, DlqError> {
    let (topic, partitions) = (topic.to_owned(), partitions.to_vec());
    let answer = cluster.query(move |client, timeout| {
        let bounds = partitions
            .iter()
            .map(|partition| Ok((*partition, client.fetch_watermarks(&topic, *partition, timeout)?)));
        bounds.collect::<Result<_, KafkaError>>()
    });
    Ok(answer.await?)
}

impl DeadLetterTopic {
    /// The topic with this name, which need not end in `.dlq`.
    pub async fn open(connection: &Connection, topic: &str) -> Result<Self, DlqError> {
        let metadata = Cluster::connect(connection)?.fetch_metadata().await?;
        Self::seen(connection, topic, &metadata)
    }

    pub(super) fn seen(connection: &Connection, topic: &str, metadata: &ClusterMetadata) -> Result<Self, DlqError> {
        if metadata.topic(topic).is_none() {
            return Err(DlqError::NoSuchTopic {
                topic: topic.to_owned(),
                known: names(metadata),
            });
        }
        let settings = [
            ("group.id", group_of(topic)),
            ("enable.auto.commit", "false".to_owned()),
            ("enable.partition.eof", "true".to_owned()),
            ("auto.offset.reset", "earliest".to_owned()),
        ];
        Ok(Self {
            cluster: Cluster::connect_with(connection, &settings)?,
            name: topic.to_owned(),
            partitions: partitions_of(topic, metadata),
            reading: Arc::default(),
        })
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many letters are open.
    pub async fn open_letters(&self) -> Result<u64, DlqError> {
        let bounds = self.bounds().await?;
        let progress = self.progress(&bounds).await?;
        let open = progress
            .iter()
            .map(|(partition, progress)| progress.open(bounds[partition].1));
        Ok(open.sum())
    }

    /// Letters, by partition and offset.
    pub async fn letters(&self, selection: &Selection) -> Result<Vec<DeadLetterRecord>, DlqError> {
        self.ensure_partition(selection.partition)?;
        let bounds = self.bounds().await?;
        let progress = self.progress(&bounds).await?;
        let limit = usize::try_from(selection.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut letters = Vec::new();
        for (partition, (low, high)) in bounds {
            let from = if selection.open {
                progress[&partition].position.max(low)
            } else {
                low
            };
            let (selection, done) = (selection.clone(), progress[&partition].clone());
            let left = limit.saturating_sub(letters.len());
            let found = self.read(partition, (from, high), move |reader| {
                let mut found = Vec::new();
                while found.len() < left
                    && let Some(page) = reader.page(PAGE_SIZE)?
                {
                    let marked = page.letters.into_iter().map(|letter| DeadLetterRecord {
                        replayed: done.includes(letter.offset),
                        ..letter
                    });
                    found.extend(marked.filter(|letter| selection.includes(letter)));
                }
                found.truncate(left);
                Ok(found)
            });
            letters.extend(found.await?);
        }
        Ok(letters)
    }

    /// The letter at an offset.
    pub async fn letter(&self, partition: i32, offset: i64) -> Result<DeadLetterRecord, DlqError> {
        self.ensure_partition(Some(partition))?;
        let bounds = self.bounds().await?;
        let (low, high) = bounds.get(&partition).copied().unwrap_or_default();
        let missing = DlqError::NoSuchLetter {
            topic: self.name.clone(),
            partition,
            offset,
            low,
            high,
        };
        if !(low..high).contains(&offset) {
            return Err(missing);
        }
        let page = self
            .read(partition, (offset, offset + 1), |reader| reader.page(1))
            .await?;
        let letter = page
            .and_then(|page: Page| page.letters.into_iter().next())
            .ok_or(missing)?;
        let replayed = self.progress(&bounds).await?[&partition].includes(offset);
        Ok(DeadLetterRecord { replayed, ..letter })
    }

    /// Refuses a partition that the topic does not have: nothing in it would look like nothing to do.
    pub(super) fn ensure_partition(&self, wanted: Option<i32>) -> Result<(), DlqError> {
        match wanted {
            Some(partition) if !self.partitions.contains(&partition) => Err(DlqError::NoSuchPartition {
                topic: self.name.clone(),
                partition,
                known: self.partitions.clone(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) async fn bounds(&self) -> Result<BTreeMap<i32, (i64, i64)>, DlqError> {
        bounds(&self.cluster, &self.name, &self.partitions).await
    }

    /// What was replayed of each partition.
    pub(super) async fn progress(
        &self,
        bounds: &BTreeMap<i32, (i64, i64)>,
    ) -> Result<BTreeMap<i32, Progress>, DlqError> {
        let kept = match self.committed().await? {
            committed if !committed.is_empty() => committed,
            _ => self.last_marker(bounds).await?,
        };
        let within = bounds.iter().map(|(partition, (low, high))| {
            let progress = kept.get(partition).cloned().unwrap_or(Progress::at(*low));
            (*partition, progress.within(*low, *high))
        });
        Ok(within.collect())
    }

    async fn committed(&self) -> Result<BTreeMap<i32, Progress>, DlqError> {
        let (topic, partitions) = (self.name.clone(), self.partitions.clone());
        let answer = self.cluster.query(move |client, timeout| {
            let mut wanted = TopicPartitionList::new();
            for partition in &partitions {
                wanted.add_partition(&topic, *partition);
            }
            let committed = client.committed_offsets(wanted, timeout)?;
            let mut found = BTreeMap::new();
            for element in committed.elements() {
                element.error()?;
                if let Offset::Offset(position) = element.offset() {
                    let progress = Progress::read(position, element.metadata());
                    found.insert(element.partition(), progress.unwrap_or(Progress::at(position)));
                }
            }
            Ok(found)
        });
        Ok(answer.await?)
    }

    /// What the last marker says, for when the cluster has forgotten the group's offsets.
    async fn last_marker(&self, bounds: &BTreeMap<i32, (i64, i64)>) -> Result<BTreeMap<i32, Progress>, DlqError> {
        let Some((partition, range)) = bounds.first_key_value() else {
            return Ok(BTreeMap::new());
        };
        let found = self.read(*partition, *range, |reader| {
            let mut last = None;
            while let Some(page) = reader.page(PAGE_SIZE)? {
                last = page.marker.or(last);
            }
            Ok(last)
        });
        Ok(found.await?.and_then(|text| marker::read(&text)).unwrap_or_default())
    }

    /// Reads a range of a partition on a thread that may block.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        partition: i32,
        range: (i64, i64),
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Explanation> + Send + 'static,
    ) -> Result<T, DlqError> {
        let topic = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _one_at_a_time = topic.reading.lock();
            let client: &BaseConsumer<ErrorRecorder> = topic.cluster.client();
            let mut reader = Reader::open(client, topic.cluster.connection(), &topic.name, partition, range)?;
            read(&mut reader)
        });
        let read = reading
            .await
            .unwrap_or_else(|_| Err(self.cluster.explain(&KafkaError::Canceled, None)));
        Ok(read?)
    }
}
