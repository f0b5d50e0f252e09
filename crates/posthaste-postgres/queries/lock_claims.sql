-- Serialises the ordered claims of one outbox until the end of the transaction.
select pg_advisory_xact_lock(hashtextextended($1, 0))
