-- How many of these failed rows are there.
--   ?1 their numbers
select count(*) from "@failed" where number in (select value from json_each(?1))
