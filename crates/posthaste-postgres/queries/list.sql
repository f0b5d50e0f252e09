-- Rows as an operator sees them.
select
    "@o.seq:int"::bigint as seq, "@o.message", "@o.max_attempts:int"::bigint as max_attempts,
    "@o.version:int"::bigint as version,
    "@o.status"::text as status, coalesce("@o.attempts:int", 0)::bigint as attempts,
    /*if next_attempt_at*/ coalesce("@o.next_attempt_at:time", "@o.created_at:time") /*else*/ "@o.created_at:time" /*end*/
        as next_attempt_at,
    /*if locked_by*/ "@o.locked_by:text" /*else*/ "@o.lease_token:text" /*end*/ as locked_by,
    /*if locked_until*/ "@o.locked_until:time" /*else*/ null::timestamptz /*end*/ as locked_until,
    "@o.last_error:text" as last_error, "@o.created_at:time" as created_at,
    /*if updated_at*/ coalesce("@o.updated_at:time", "@o.created_at:time") /*else*/ "@o.created_at:time" /*end*/
        as updated_at,
    /*if delivered_at*/ "@o.delivered_at:time" /*else*/ null::timestamptz /*end*/ as delivered_at
from "@outbox" o
where /*if namespace*/ ($1::text is null or "@o.namespace:text" = $1) /*else*/ ($1::text is null or true) /*end*/
    and ($2::text[] is null or "@o.status"::text = any ($2))
    and /*if topic*/ ($3::text is null or "@o.topic:text" = $3) /*else*/ $3::text is null /*end*/
    and /*if ordering_key*/ ($4::text is null or "@o.ordering_key:text" = $4) /*else*/ $4::text is null /*end*/
    and /*if tenant*/ ($5::text is null or "@o.tenant:text" = $5) /*else*/ $5::text is null /*end*/
    and ($6::text[] is null or "@o.id" = any ($6::text[]::/*type id*/ uuid /*end*/[]))
    /*if split_index*/
    -- As a condition on the index; nothing comes after a row that is gone.
    and "@o.seq" + 0 > case when $7::text is null then 0
        else (select "@a.seq" from "@outbox" a where "@a.id" = $7::text::/*type id*/ uuid /*end*/) end
    /*else*/
    and ($7::text is null or ("@o.order") > (
        select "@a.order" from "@outbox" a where "@a.id" = $7::text::/*type id*/ uuid /*end*/
    ))
    /*end*/
order by /*if split_index*/ "@o.seq" + 0 /*else*/ "@o.order" /*end*/
limit $8
