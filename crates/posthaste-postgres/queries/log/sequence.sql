-- Whether ids are given out in order: a sequence with a cache gives each session ids in advance.
select s.seqcache as cache, s.seqincrement as increment
from pg_sequence s
where s.seqrelid = pg_get_serial_sequence($1, $2)::regclass
