-- Frees one of them, unless it was taken anew.
delete from "@dedupe" where namespace = $1 and topic = $2 and dedupe_key = $3 and held_by = $4
