-- In which files the log is. Others mean that it was truncated, rewritten or made anew, so that what was read of it says
-- nothing about the rows that are there now.
--   $1 the table
with recursive family (relation) as (
    select $1::text::regclass::oid
    union
    select i.inhrelid from pg_inherits i join family f on i.inhparent = f.relation
)
select /*if shard*/
    -- Segments come and go.
    ''::text as files,
    /*else*/ coalesce(string_agg(pg_relation_filenode(relation)::text, ' ' order by relation), '') as files, /*end*/
    -- A transaction that begins to write from now on has at least this number.
    (txid_snapshot_xmin(txid_current_snapshot()) % 4294967296)::text as horizon
from family
