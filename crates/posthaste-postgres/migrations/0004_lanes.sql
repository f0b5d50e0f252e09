-- The lanes of fresh rows (a topic and a key, or the empty text for none): a claim that finds its way past a deep backlog
-- goes from lane to lane instead of from row to row, and a scheduled row sees whether an earlier one of its key is fresh.
create index outbox_fresh_lane on "@outbox" (namespace, topic, (coalesce(ordering_key, '')), seq)
    where status = 'pending' and next_attempt_at <= created_at;

-- Operators page through the table by sequence.
create index outbox_seq on "@outbox" (seq);
