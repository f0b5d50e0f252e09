-- What holds back later rows of its lane. Readers ask for it row by row, and whether there is any: dead letters, of which there may be
-- many, must not make that slow.
create index log_failed_waiting on "@schema".log_failed (topic, ordering_key, log_id)
    where died_at is null and ordering_key is not null;
