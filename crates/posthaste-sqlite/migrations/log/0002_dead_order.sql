-- Dead messages in the order in which they are listed, replayed and discarded: a page of many is found without sorting all of them.
create index "@failed+dead" on "@failed" (log_id) where died_at is not null;
