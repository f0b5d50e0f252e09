-- ?1 most values; not the whole table, which may be large
select distinct substr(cast("@column" as text), 1, 200) as value
from (select "@column" from "@table" where "@column" is not null limit 20000) sample
order by value
limit ?1
