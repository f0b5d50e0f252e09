-- $1 id
update outbox set status = 'SENT', sent_at = localtimestamp where id = $1
