-- Lets the next one read at once.
--   ?1 epoch
update "@cursor" set owner = null, leased_until = 0 where shard = 0 and epoch = ?1
