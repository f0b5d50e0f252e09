drop index if exists posthaste.outbox_fresh, posthaste.outbox_waiting, posthaste.outbox_waiting_key,
    posthaste.outbox_tried, posthaste.outbox_fresh_lane;
create index if not exists outbox_open on posthaste.outbox (namespace, seq) where status = 'pending'
