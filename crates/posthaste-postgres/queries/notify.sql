-- Wakes the relays that listen; never inside a producer's transaction. Its commit does not wait for the disk: there is nothing in
-- it that a crash could undo.
select pg_notify($1, ''), set_config('synchronous_commit', 'off', true)
