-- Prolongs the reader's lease, unless another one reads by now.
--   ?1 epoch  ?2 lease in ms
update "@cursor"
set leased_until = cast(unixepoch('subsec') * 1000 as integer) + ?2
where shard = 0 and epoch = ?1
returning epoch
