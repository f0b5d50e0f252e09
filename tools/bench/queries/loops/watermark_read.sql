-- $1 transaction and $2 id of the last row read, as text and number  $3 limit
-- The column, and not the text of it that is returned: else all rows would be sorted for each read.
select xid::text, id, event_id, aggregate_id, payload from events
where (xid, id) > ($1::text::xid8, $2) and xid < pg_snapshot_xmin(pg_current_snapshot())
order by events.xid, id
limit $3
