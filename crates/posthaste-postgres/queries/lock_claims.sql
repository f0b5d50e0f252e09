-- Serialises the ordered claims of one outbox until the end of the transaction, and gives the claim room for its sets of
-- blocked keys: if they did not fit they would be searched row by row.
select pg_advisory_xact_lock(hashtextextended($1, 0)), set_config('work_mem', '64MB', true)
