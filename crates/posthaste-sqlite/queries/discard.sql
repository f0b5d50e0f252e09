-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
delete from "@outbox" /*if split_index*/ indexed by "@outbox+id" /*end*/
where "@status" = '@dead' and "@id" in (
    select "@id"
    from "@outbox" /*if split_index*/ indexed by "@outbox+dead" /*end*/
    where "@status" = '@dead'
        /*if namespace*/ and (?1 is null or "@namespace" = /*as namespace*/ ?1 /*end*/) /*end*/
        /*if topic*/ and (?2 is null or "@topic" = ?2) /*end*/
        /*if ordering_key*/ and (?3 is null or "@ordering_key" = /*as ordering_key*/ ?3 /*end*/) /*end*/
        /*if tenant*/ and (?4 is null or "@tenant" = /*as tenant*/ ?4 /*end*/) /*end*/
        and (?5 is null or "@id" in (select /*as id*/ value /*end*/ from json_each(?5)))
    order by "@order"
    limit ?6
)
returning "@order:as", "@id:text" as id
