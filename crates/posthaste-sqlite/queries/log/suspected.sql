-- Of failed rows that may have killed a reader, those that are still to be delivered, with their lanes.
--   ?1 their numbers
select number, topic, ordering_key
from "@failed"
where number in (select value from json_each(?1)) and died_at is null
