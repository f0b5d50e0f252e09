-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select "@o.id" as id
    from "@outbox" o
    where "@o.status" = '@dead'
        and /*if namespace*/ ($1::text is null or "@o.namespace:text" = $1) /*else*/ ($1::text is null or true) /*end*/
        and /*if topic*/ ($2::text is null or "@o.topic:text" = $2) /*else*/ $2::text is null /*end*/
        and /*if ordering_key*/ ($3::text is null or "@o.ordering_key:text" = $3) /*else*/ $3::text is null /*end*/
        and /*if tenant*/ ($4::text is null or "@o.tenant:text" = $4) /*else*/ $4::text is null /*end*/
        and ($5::text[] is null or "@o.id" = any ($5::text[]::/*type id*/ uuid /*end*/[]))
    order by "@o.order"
    limit $6
    -- Waiting: past a row that is locked, later ones of its key would come before it.
    for update
)
update "@outbox" o
set "@status" = '@pending'
    /*if attempts*/ , "@attempts" = 0 /*end*/
    /*if next_attempt_at*/ , "@next_attempt_at" = /*if split_index*/
        -- Due at once, but waiting by kind: followers that wait already must not overtake it.
        greatest(now(), "@o.created_at" + interval '1 microsecond')
        /*else*/ /*as next_attempt_at*/ now() /*end*/ /*end*/ /*end*/
    /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
    /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
where "@o.id" = any (array(select id from chosen))
returning "@o.id:text" as id
