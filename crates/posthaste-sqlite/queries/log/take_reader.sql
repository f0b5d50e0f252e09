-- Makes a relay the reader if there is none, or the one that was has let its lease run out.
--   ?1 worker  ?2 lease in ms
update "@cursor"
set epoch = epoch + 1, owner = ?1, leased_until = cast(unixepoch('subsec') * 1000 as integer) + ?2
where shard = 0 and (owner is null or owner = ?1 or leased_until <= cast(unixepoch('subsec') * 1000 as integer))
returning epoch, hi, open, handed_out
