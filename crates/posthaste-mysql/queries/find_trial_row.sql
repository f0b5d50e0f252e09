-- A row on which verdicts can be tried.
select "@o.id:text" as id from "@outbox" o where "@o.status" in ('@open') limit 1
