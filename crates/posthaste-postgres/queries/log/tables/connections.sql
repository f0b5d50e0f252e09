-- The connections that this role may still have: the least that the server, the database and the role leave it. Those that are kept
-- for superusers are not counted.
with sessions as materialized (
    select datid, usesysid from pg_stat_activity where datid is not null and usesysid is not null
),
bounds (bound, bound_limit, in_use) as (
    select 'max_connections', current_setting('max_connections')::bigint
            - (select sum(setting::bigint) from pg_settings where name in ('superuser_reserved_connections', 'reserved_connections')),
        (select count(*) from sessions)
    union all
    select 'the connection limit of the role ' || r.rolname, r.rolconnlimit,
        (select count(*) from sessions s where s.usesysid = r.oid)
    from pg_roles r
    where r.rolname = current_user and r.rolconnlimit >= 0 and not r.rolsuper
    union all
    select 'the connection limit of the database ' || d.datname, d.datconnlimit,
        (select count(*) from sessions s where s.datid = d.oid)
    from pg_database d
    where d.datname = current_database() and d.datconnlimit >= 0
)
select b.bound::text, b.bound_limit::bigint, b.in_use::bigint, (b.bound_limit - b.in_use)::bigint as free
from bounds b
order by free
limit 1
