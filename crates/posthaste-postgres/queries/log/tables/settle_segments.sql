-- Which of the closed segments are settled.
select "@schema".log_settle_segments()
