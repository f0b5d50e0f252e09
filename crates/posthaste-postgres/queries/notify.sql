-- Wakes the relays that listen; never inside a producer's transaction.
select pg_notify($1, '')
