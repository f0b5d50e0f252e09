-- Takes rows back from workers that are held to have crashed, where the table only says since when a row is held. The
-- attempt counts: this row may be what killed its worker.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 the error of a row that has none  $6 stalled after, in ms
--   $7 only these rows, if any are given  $8 added to attempts of a row that dies
with stalled as materialized (
    select "@o.id" as id,
        coalesce("@o.attempts", 0) >= /*put o.max_attempts*/ as exhausted
    from "@outbox" o
    where "@o.status" = '@processing'
        and ("@o.locked_at" is null
            or "@o.locked_at" < /*as locked_at*/ now() - $6::bigint * interval '1 millisecond' /*end*/)
        and /*put o.in_scope*/
        and ($7::text[] is null or "@o.id" = any ($7::text[]::/*type id*/ uuid /*end*/[]))
    for update skip locked
)
/*list stalled*/
, recovered as (
    update "@outbox" o
    set "@status" = case when m.exhausted then '@dead' when not m.exhausted then '@pending' else "@o.status" end,
        "@lease_token" = null, "@locked_at" = null
        /*if locked_by*/ , "@locked_by" = null /*end*/
        , "@attempts" = coalesce("@o.attempts", 0) + case when m.exhausted then $8::integer else 0 end
        /*if last_error*/ , "@last_error" = case when m.exhausted then coalesce("@o.last_error", $5)
            else "@o.last_error" end /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
    from stalled m
    where "@o.id" = m.id and "@o.id" = any (array(select id from stalled)) and $5::text is not null
    returning o.*
)
/*if dead_letter*/
, dead_lettered as (
    insert into "@dead_letter" ("@dead_letter/*")
    select "@d.dead_letter:values" from recovered d where "@d.status" = '@dead'
    on conflict do nothing
)
/*end*/
select "@d.id:text" as id, "@d.status" = '@dead' as exhausted from recovered d
