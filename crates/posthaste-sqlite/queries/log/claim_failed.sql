-- Counts an attempt of failed rows, before they are sent: a message that kills its worker must not be tried for ever.
--   ?1 their numbers
update "@failed" set attempts = attempts + 1 where number in (select value from json_each(?1))
