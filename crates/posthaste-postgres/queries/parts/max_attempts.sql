/*if max_attempts*/ coalesce("@max_attempts" /*if retries*/ + 1 /*end*/, $2::integer) /*else*/ $2::integer /*end*/
