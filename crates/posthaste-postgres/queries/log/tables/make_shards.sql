-- Makes the shards of a new generation, if there are to be more.
--   $1 how many
select "@schema".log_make_shards($1::integer)
