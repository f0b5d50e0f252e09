-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "@outbox" /*if split_index*/ indexed by "@outbox+id" /*end*/
where "@status" = '@dead' and "@id" in (
    select "@id"
    from "@outbox" /*if split_index*/ indexed by "@outbox+dead" /*end*/
    where "@status" = '@dead'
        and "@updated_at:time" < cast(unixepoch('subsec') * 1000 as integer) - ?1
        /*if namespace*/ and (?3 is null or "@namespace" = /*as namespace*/ ?3 /*end*/) /*end*/
    order by "@updated_at"
    limit ?2
)
returning "@order:as", "@id:text" as id
