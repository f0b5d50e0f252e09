-- The shards that there are.
select s.shard from "@reader_state" s order by s.shard
