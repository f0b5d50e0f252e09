-- Whether there are more rows than so many that may be claimed some day.
--   ?1 namespace  ?2 how many
select exists (select 1 from "@outbox" o where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/ limit 1 offset ?2)
