-- Keeps relays of the queue from claiming.
select "@schema".log_fence_queue()
