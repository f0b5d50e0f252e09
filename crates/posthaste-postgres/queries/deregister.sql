-- Takes a relay off the list and ends its leadership.
with resigned as (delete from "@leaders" where worker = $1)
delete from "@relays" where worker = $1
