-- Whether a shard is still this instance's, and stays so until this transaction ends: whoever takes it waits.
--   $1 the shard  $2 its epoch
select s.shard from "posthaste".log_shards s where s.shard = $1 and s.epoch = $2 for share
