-- Takes a relay off the list.
--   ?1 worker
delete from "@relays" where worker = ?1
