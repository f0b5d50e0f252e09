-- The owner of the log, if this role has not its rights: nobody else may make, attach, detach and drop its segments.
select pg_get_userbyid(c.relowner)::text as owner
from pg_class c
where c.oid = '@schema.log'::regclass and not pg_has_role(c.relowner, 'usage')
