-- Writes down how far the log is settled, and prolongs the lease, unless another one reads by now.
--   ?1 epoch  ?2 lease in ms  ?3 the highest row that was read  ?4 ranges up to there that are not settled
--   ?5 what may be handed out
update "@cursor"
set hi = ?3, open = ?4, handed_out = ?5, updated_at = cast(unixepoch('subsec') * 1000 as integer),
    leased_until = cast(unixepoch('subsec') * 1000 as integer) + ?2
where shard = 0 and epoch = ?1
returning epoch
