-- Ends what lock_claims began.
do release_lock(concat('posthaste:', left(sha2(concat_ws('/', coalesce($1, database()), $2, $3), 256), 40)))
