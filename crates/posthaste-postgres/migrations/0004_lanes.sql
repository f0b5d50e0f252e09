-- The lanes of fresh rows (a topic and a key, or the empty text for none): a claim that finds its way past a deep backlog
-- goes from lane to lane instead of from row to row, and a scheduled row sees whether an earlier one of its key is fresh.
create index outbox_fresh_lane on "@outbox" (namespace, topic, (coalesce(ordering_key, '')), seq)
    where status = 'pending' and next_attempt_at <= created_at;

-- Operators page through the table by sequence. As an expression, so that it is never taken for a way to claim rows in
-- sequence: that would lead past all that were delivered.
create index outbox_page on "@outbox" ((seq + 0));
