-- Who may still commit rows with ids that a read passed over: whoever took such an id had a lock before that read's snapshot,
-- and keeps it until its transaction ends. So one that is not here has ended, and the next read finds what it committed.
-- To be run after the read.
--   $1 the table, or the sequence of a shard
select virtualtransaction as name, pid is null as prepared
from pg_locks
where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())
    and relation in (
        with recursive family (relation) as (
            select $1::text::regclass::oid
            union
            select i.inhrelid from pg_inherits i join family f on i.inhparent = f.relation
        )
        select f.relation from family f
        union all
        select d.objid
        from pg_depend d
        where d.refclassid = 'pg_class'::regclass and d.refobjid = $1::text::regclass
            and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
        union all
        select d.refobjid
        from pg_attrdef a
        join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid
            and d.refclassid = 'pg_class'::regclass
        where a.adrelid = $1::text::regclass
    )
