-- Sends rows to the newest generation of shards.
select "@schema".log_use_shards()
