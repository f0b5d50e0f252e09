-- Which of the segments ahead may be opened.
select "@schema".log_ready_segments()
