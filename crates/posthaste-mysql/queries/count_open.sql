-- How many pending rows there are, up to a number.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant  $6 the number
select count(*) as open
from (
    select 1
    from "@outbox" o
    where "@o.status" in ('@open')
        /*put o.and_in_scope*/
    limit $6
) counted
