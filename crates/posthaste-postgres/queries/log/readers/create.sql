-- Where the readers of mapped logs keep what they know beyond the cursor. The mapped tables stay as they are.
create schema if not exists "posthaste";
create table if not exists "posthaste".log_readers (
    -- The cursor's table, with its schema.
    log text primary key,
    -- The tables as they were: one that was made anew has another number.
    tables text not null,
    -- The highest id that was read, and the ids up to there that are not settled: `hi;first-last,…`.
    state text not null,
    -- The cursor when this was written. One that was moved since by somebody else overrules the state.
    position bigint not null,
    updated_at timestamptz not null default clock_timestamp()
);
-- What the reader may have in flight, written ahead, with the crashes that rows may have caused:
-- `reader reach;first-last:crashes,…`. Tables of earlier versions lack it.
alter table "posthaste".log_readers add column if not exists handed_out text not null default '';
