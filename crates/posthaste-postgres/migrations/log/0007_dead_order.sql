-- Dead messages in the order in which they are listed, replayed and discarded. There may be few among many that wait, or so many that
-- they must not be sorted for each page.
create index log_failed_dead_order on "@schema".log_failed (id) where died_at is not null;
