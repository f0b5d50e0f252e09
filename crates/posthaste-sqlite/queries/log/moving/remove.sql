-- Removes from the queue what was moved, in the transaction that has moved it.
delete from "@queue" where namespace = 'default' and status in ('pending', 'processing', 'dead')
