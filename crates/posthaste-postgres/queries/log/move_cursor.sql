-- Writes down how far the log is settled, as a new row. It is the newest also when the clock was set back.
insert into "@cursor" ("@cursor/position" /*if cursor/created_at*/ , "@cursor/created_at" /*end*/)
select $1 /*if cursor/created_at*/ , /*as cursor/created_at*/ greatest(
        clock_timestamp(), (select max("@c.cursor/created_at:time") + interval '1 microsecond' from "@cursor" c)
    ) /*end*/ /*end*/
