-- Ends a relay's leadership.
--   ?1 worker
delete from "@leaders" where worker = ?1
