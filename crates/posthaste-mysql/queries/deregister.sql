-- Takes a relay off the list.
delete from "@relays" where worker = $1
