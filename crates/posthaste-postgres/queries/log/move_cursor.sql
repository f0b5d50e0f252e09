-- Writes down how far the log is settled: in the row of the shard, or as a new row, which is the newest also when the clock was
-- set back.
/*if shard*/
update "@reader_state" set position = $1, updated_at = now() where shard = $2
/*else*/
insert into "@cursor" ("@cursor/position" /*if cursor/created_at*/ , "@cursor/created_at" /*end*/)
select $1 /*if cursor/created_at*/ , /*as cursor/created_at*/ greatest(
        clock_timestamp(), (select max("@c.cursor/created_at:time") + interval '1 microsecond' from "@cursor" c)
    ) /*end*/ /*end*/
/*end*/
