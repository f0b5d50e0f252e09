-- ?1 a table. One row per column; an expression has no name.
select l.name as index_name, l."unique" as is_unique, l.partial as is_partial, l.origin = 'pk' as is_primary, i.name as column_name
from pragma_index_list(?1) l, pragma_index_info(l.name) i
order by l.name, i.seqno
