-- Most values; not the whole table, which may be large.
select distinct left(cast("@column" as char), 200) as value
from (select "@column" from "@table" where "@column" is not null limit 20000) sample
order by value
limit ?
