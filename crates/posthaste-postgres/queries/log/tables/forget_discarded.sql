-- Forgets which rows were discarded that are gone with their segments.
select "@schema".log_forget_discarded()
