-- Who reads the log, and how far it is settled.
select owner, epoch, hi, open, handed_out, leased_until,
    coalesce(leased_until, 0) > cast(unixepoch('subsec') * 1000 as integer) as is_leased
from "@cursor"
where shard = 0
