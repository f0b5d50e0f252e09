-- Failed rows that were delivered.
--   ?1 their numbers
delete from "@failed" where number in (select value from json_each(?1))
