-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
delete from "@outbox" indexed by "@outbox+id"
where "@status" = '@dead' and "@id" in (
    select "@id"
    from "@outbox" indexed by "@outbox+dead"
    where "@status" = '@dead'
        and (?1 is null or "@namespace" = ?1)
        and (?2 is null or "@topic" = ?2)
        and (?3 is null or "@ordering_key" = ?3)
        and (?4 is null or "@tenant" = ?4)
        and (?5 is null or "@id" in (select value from json_each(?5)))
    order by "@seq"
    limit ?6
)
returning "@id" as id, "@seq" as seq
