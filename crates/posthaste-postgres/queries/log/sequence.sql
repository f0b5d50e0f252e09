-- What the proof needs to know of the log's table and of the sequences that give its ids: those that it owns and those that
-- its default asks. One row without a sequence if there is none, and no last value where none was given out since it was
-- set, or where it may not be read.
--   $1 the table  $2 the id's column  $3 the sequence of the shard, where there are shards
with log as (
    select c.oid, c.relkind::text as kind, a.attnum
    from pg_class c
    left join pg_attribute a on a.attrelid = c.oid and a.attname = $2
    where c.oid = $1::text::regclass
),
sequences as (
    select d.objid as oid
    from log
    join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = log.oid and d.refobjsubid = log.attnum
        and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
    union
    select d.refobjid
    from log
    join pg_attrdef a on a.adrelid = log.oid and a.adnum = log.attnum
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid and d.refclassid = 'pg_class'::regclass
)
select log.kind, s.seqrelid::regclass::text as sequence, s.seqcache as cache, s.seqincrement as increment,
    case when has_sequence_privilege(s.seqrelid, 'select, usage') then pg_sequence_last_value(s.seqrelid) end as last_value
from log
left join (sequences q join pg_sequence s on s.seqrelid = q.oid) on true
/*if shard*/ where s.seqrelid = $3::text::regclass /*end*/
order by 2
