-- The newest generation of shards, whether rows go there yet or not.
select g.generation, g.shards from "@schema".log_generations g order by g.generation desc limit 1
