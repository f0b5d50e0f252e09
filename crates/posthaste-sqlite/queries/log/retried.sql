-- What became of failed rows that were tried again. Written twice it counts once.
--   ?1 [[number, attempts, error, wait in ms or null, whether it is dead], …]
update "@failed"
set attempts = n.value ->> 1, last_error = coalesce(n.value ->> 2, last_error),
    next_attempt_at = coalesce(cast(unixepoch('subsec') * 1000 as integer) + (n.value ->> 3), next_attempt_at),
    died_at = iif(n.value ->> 4, cast(unixepoch('subsec') * 1000 as integer), null)
from json_each(?1) n
where number = n.value ->> 0
