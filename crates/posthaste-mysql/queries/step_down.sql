-- Ends the leadership of a relay that leaves.
delete from "@leaders" where worker = $1
