-- Finds the rows that kept others from being written: one with the dedupe key, or the event id, or the id.
select w.place, f.id, false as is_new
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) with ordinality
    as w (id, event_id, namespace, topic, dedupe_key, place)
cross join lateral (
    select "@o.id:text" as id
    from "@outbox" o
    where /*if dedupe_key*/ ("@o.dedupe_key" = w.dedupe_key::/*type dedupe_key*/ text /*end*/
            /*if namespace*/ and "@o.namespace:text" = w.namespace /*end*/
            /*if topic*/ and "@o.topic:text" = w.topic /*end*/) /*else*/ false /*end*/
        /*if event_id*/ or "@o.event_id" = w.event_id::/*type event_id*/ text /*end*/ /*end*/
        /*if generated_id*/ /*else*/ or "@o.id" = w.id::/*type id*/ uuid /*end*/ /*end*/
    limit 1
) f
order by w.place
