-- How far a move of the queue has come.
select
    exists (select from pg_trigger
        where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim') as is_fenced,
    exists (select from pg_trigger
        where tgrelid = '@schema.outbox'::regclass and tgname = 'log_redirect') as is_redirected
