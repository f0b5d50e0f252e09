drop index if exists posthaste.outbox_open;
create index if not exists outbox_fresh on posthaste.outbox (namespace, seq)
    where status = 'pending' and next_attempt_at <= created_at;
create index if not exists outbox_waiting on posthaste.outbox (namespace, next_attempt_at, seq)
    where status = 'pending' and next_attempt_at > created_at;
create index if not exists outbox_waiting_key on posthaste.outbox (namespace, topic, ordering_key, seq) include (attempts)
    where status = 'pending' and next_attempt_at > created_at and ordering_key is not null;
create index if not exists outbox_tried on posthaste.outbox (namespace, attempts)
    where status = 'pending' and next_attempt_at <= created_at and attempts > 0;
create index if not exists outbox_fresh_lane on posthaste.outbox (namespace, topic, (coalesce(ordering_key, '')), seq)
    where status = 'pending' and next_attempt_at <= created_at
