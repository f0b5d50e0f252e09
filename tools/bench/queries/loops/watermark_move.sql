-- $1 transaction and $2 id of the last row that was delivered
update reader set xid = $1::text::xid8, id = $2
