-- Lets relays of the queue claim again.
select "@schema".log_unfence_queue()
