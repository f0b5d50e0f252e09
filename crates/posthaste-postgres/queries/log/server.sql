-- Which run of the server this is, since what a reader remembers is worth nothing after a crash: rows that it saw may be
-- gone, and their ids given out again. Counters are reset after a crash, also where the postmaster went on.
select pg_postmaster_start_time()::text || ' ' || coalesce((select stats_reset::text from pg_stat_bgwriter), '') as server
