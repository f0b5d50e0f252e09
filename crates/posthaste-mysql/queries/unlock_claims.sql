-- Ends what lock_claims began.
do release_lock(concat('posthaste:', sha1(concat_ws('/', coalesce($1, database()), $2, $3))))
