-- Names every column of the dead-letter table that the table map does.
select "@dead_letter/*" from "@dead_letter" where false
