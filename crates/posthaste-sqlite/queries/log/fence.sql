-- Whether a reader is still the one; asked within the transaction that writes for it.
--   ?1 epoch
select 1 from "@cursor" where shard = 0 and epoch = ?1
