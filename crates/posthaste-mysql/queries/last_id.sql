-- The id that the server gave to the row that was written last.
select 1 as place, cast(last_insert_id() as char) as id, true as is_new
