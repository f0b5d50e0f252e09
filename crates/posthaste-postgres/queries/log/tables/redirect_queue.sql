-- Moves what is left with no writer in between, and sends to the log what is written to the queue from then on.
select "@schema".log_redirect_queue()
