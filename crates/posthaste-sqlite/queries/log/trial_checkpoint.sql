-- Whether it may be written down how far the log is settled: as it is.
update "@cursor"
set hi = hi, open = open, handed_out = handed_out, updated_at = updated_at, leased_until = leased_until
where shard = 0
returning epoch
