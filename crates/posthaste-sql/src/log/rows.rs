//! Rows in the order of their ids, in chunks: a row that is read goes to the end, and one that is settled is found by its
//! distance from the first of its chunk. Neither costs a look into a tree.

use std::collections::VecDeque;

use posthaste_core::lifecycle::LeaseToken;

/// Rows of one chunk. One into which rows come late may have twice as many.
const CHUNK_ROWS: usize = 1_024;

/// A chunk of fewer rows is not made smaller.
const MIN_COMPACT: usize = 64;

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// It may be handed out, at once or later.
    Waiting,
    /// It is handed out.
    InFlight(LeaseToken),
    /// It failed, which is not written down yet.
    Failed,
    /// It is as if it were not here.
    Settled,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: i64,
    /// By its number.
    pub(super) lane: Option<u32>,
    pub(super) at: At,
}

/// The rows that are not settled.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// In order; none overlaps another, and none is without a row that is not settled.
    chunks: VecDeque<Chunk>,
    len: usize,
    /// The memory of a chunk that is over.
    spare: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// In order; settled ones too, until there are too many of them.
    rows: Vec<Row>,
    /// All before this one are settled.
    head: usize,
    open: usize,
}

impl Chunk {
    fn first(&self) -> i64 {
        self.rows.first().map_or(i64::MAX, |row| row.id)
    }

    fn last(&self) -> i64 {
        self.rows.last().map_or(i64::MIN, |row| row.id)
    }

    fn find(&self, id: i64) -> Result<usize, usize> {
        // Where nothing is missing, the distance is the place.
        let distance = usize::try_from(id.wrapping_sub(self.first())).unwrap_or(usize::MAX);
        match self.rows.get(distance) {
            Some(row) if row.id == id => Ok(distance),
            _ => self.rows.binary_search_by_key(&id, |row| row.id),
        }
    }

    fn insert(&mut self, place: usize, row: Row) {
        self.rows.insert(place, row);
        self.opened(place);
    }

    fn opened(&mut self, place: usize) {
        self.open += 1;
        self.head = if place <= self.head { place } else { self.head };
    }

    fn settle(&mut self, place: usize) {
        self.rows[place].at = At::Settled;
        self.open -= 1;
        while self.rows.get(self.head).is_some_and(|row| row.at == At::Settled) {
            self.head += 1;
        }
        if self.rows.len() > MIN_COMPACT && self.open * 4 < self.rows.len() {
            self.rows.retain(|row| row.at != At::Settled);
            self.rows.shrink_to(2 * self.rows.len());
            self.head = 0;
        }
    }

    fn split(&mut self) -> Self {
        let rows = self.rows.split_off(self.rows.len() / 2);
        Self::of(rows)
    }

    fn of(rows: Vec<Row>) -> Self {
        let is_open = |row: &&Row| row.at != At::Settled;
        Self {
            head: rows.iter().take_while(|row| !is_open(row)).count(),
            open: rows.iter().filter(is_open).count(),
            rows,
        }
    }
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The lowest id that is not settled.
    pub(super) fn first(&self) -> Option<i64> {
        let chunk = self.chunks.front()?;
        chunk.rows.get(chunk.head).map(|row| row.id)
    }

    /// Those that are not settled, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        let rows = self.chunks.iter().flat_map(|chunk| &chunk.rows[chunk.head..]);
        rows.filter(|row| row.at != At::Settled)
    }

    pub(super) fn get(&self, id: i64) -> Option<&Row> {
        let (chunk, place) = self.find(id)?;
        Some(&self.chunks[chunk].rows[place]).filter(|row| row.at != At::Settled)
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Row> {
        let (chunk, place) = self.find(id)?;
        Some(&mut self.chunks[chunk].rows[place]).filter(|row| row.at != At::Settled)
    }

    /// Takes out a row if it stands as it should; returns it as it stood.
    pub(super) fn settle(&mut self, id: i64, if_it: impl Fn(At) -> bool) -> Option<Row> {
        let (index, place) = self.find(id)?;
        let chunk = &mut self.chunks[index];
        let row = chunk.rows[place];
        if row.at == At::Settled || !if_it(row.at) {
            return None;
        }
        self.len -= 1;
        if chunk.open > 1 {
            chunk.settle(place);
        } else if let Some(mut over) = self.chunks.remove(index) {
            over.rows.clear();
            self.spare = over.rows;
        }
        Some(row)
    }

    /// Takes in a row that is not here.
    pub(super) fn insert(&mut self, row: Row) {
        self.len += 1;
        if self.chunks.back().is_none_or(|chunk| chunk.last() < row.id) {
            return self.push(row);
        }
        let index = self.chunks.partition_point(|chunk| chunk.last() < row.id);
        let chunk = &mut self.chunks[index];
        match chunk.find(row.id) {
            Ok(place) => {
                chunk.rows[place] = row;
                chunk.opened(place);
            }
            Err(place) => {
                chunk.insert(place, row);
                if chunk.rows.len() > 2 * CHUNK_ROWS {
                    self.split(index);
                }
            }
        }
    }

    /// How many rows there is memory for.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rows.capacity()).sum()
    }

    fn push(&mut self, row: Row) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.rows.len() < CHUNK_ROWS => {
                chunk.rows.push(row);
                chunk.open += 1;
            }
            _ => {
                let mut rows = std::mem::take(&mut self.spare);
                rows.reserve(CHUNK_ROWS);
                rows.push(row);
                self.chunks.push_back(Chunk::of(rows));
            }
        }
    }

    /// Makes two of a chunk; one of them may have no row left that is not settled.
    fn split(&mut self, index: usize) {
        let upper = self.chunks[index].split();
        let lower = Chunk::of(std::mem::take(&mut self.chunks[index].rows));
        self.chunks.remove(index);
        for half in [upper, lower].into_iter().filter(|half| half.open > 0) {
            self.chunks.insert(index, half);
        }
    }

    fn find(&self, id: i64) -> Option<(usize, usize)> {
        // What is settled is mostly at the front, and what is new beyond the end.
        let index = if id > self.chunks.back()?.last() {
            return None;
        } else if id <= self.chunks.front()?.last() {
            0
        } else {
            self.chunks.partition_point(|chunk| chunk.last() < id)
        };
        let place = self.chunks.get(index)?.find(id).ok()?;
        Some((index, place))
    }
}
