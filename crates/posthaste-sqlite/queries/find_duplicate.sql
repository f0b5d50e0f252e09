-- Which row was there before each of those that were not written.
--   ?1 rows as a JSON array
select i.key as place, "@o.id:text" as id, false as is_new
from json_each(?1) i
cross join "@outbox" o
where /*if generated_id*/ false /*else*/ "@o.id" = /*as id*/ (i.value ->> 'id') /*end*/ /*end*/
    /*if event_id*/ or "@o.event_id" = /*as event_id*/ (i.value ->> 'event_id') /*end*/ /*end*/
    /*if dedupe_key*/ or ("@o.dedupe_key" = /*as dedupe_key*/ (i.value ->> 'dedupe_key') /*end*/
        /*if namespace*/ and "@o.namespace" = /*as namespace*/ (i.value ->> 'namespace') /*end*/ /*end*/
        /*if topic*/ and "@o.topic" = i.value ->> 'topic' /*end*/) /*end*/
