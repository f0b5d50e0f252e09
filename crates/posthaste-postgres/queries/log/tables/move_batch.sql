-- Moves the oldest rows of the queue to the log.
--   $1 how many fresh ones
select "@schema".log_move_batch($1::integer)
