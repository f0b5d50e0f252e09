-- Messages of the queue that the log does not take, the oldest first, and how many there are.
--   ?1 how many to name
select seq, quote(id) as id, typeof(id) as kind, count(*) over () as unfit
from "@queue"
where namespace = 'default' and status in ('pending', 'processing', 'dead') and typeof(id) <> 'text'
order by seq
limit ?1
