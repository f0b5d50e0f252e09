//! Products in Redis.

use redis::Script;
use redis::aio::ConnectionManager;

/// A cache of products by id. Cheap to clone.
#[derive(Clone)]
pub struct Cache(ConnectionManager);

/// A place in the cache that was empty when it was looked at, and may be filled unless it was cleared since.
pub struct CacheMiss {
    id: i64,
    clearings: u64,
}

const SECONDS_KEPT: u64 = 300;

impl Cache {
    pub async fn connect(url: &str) -> redis::RedisResult<Self> {
        let client = redis::Client::open(url)?;
        Ok(Self(client.get_connection_manager().await?))
    }

    /// What is cached, or the miss by which the gap is filled.
    pub async fn get(&self, id: i64) -> redis::RedisResult<Result<String, CacheMiss>> {
        let (found, clearings): (Option<String>, Option<u64>) = redis::cmd("MGET")
            .arg(product(id))
            .arg(clearings_of(id))
            .query_async(&mut self.0.clone())
            .await?;
        let clearings = clearings.unwrap_or(0);
        Ok(found.ok_or(CacheMiss { id, clearings }))
    }

    /// Fills the gap, unless the product was cleared since it was seen: what was read before may be out of date.
    pub async fn fill(&self, miss: CacheMiss, value: &str) -> redis::RedisResult<()> {
        let script = Script::new(
            "if tonumber(redis.call('GET', KEYS[2]) or '0') == tonumber(ARGV[1]) then
               redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
             end",
        );
        script
            .key(product(miss.id))
            .key(clearings_of(miss.id))
            .arg(miss.clearings)
            .arg(value)
            .arg(SECONDS_KEPT)
            .invoke_async(&mut self.0.clone())
            .await
    }

    /// Forgets a product. Doing it twice does no harm.
    pub async fn clear(&self, id: i64) -> redis::RedisResult<()> {
        redis::pipe()
            .atomic()
            .incr(clearings_of(id), 1)
            .ignore()
            .del(product(id))
            .ignore()
            .query_async(&mut self.0.clone())
            .await
    }
}

fn product(id: i64) -> String {
    format!("product:{id}")
}

fn clearings_of(id: i64) -> String {
    format!("product:{id}:clearings")
}
