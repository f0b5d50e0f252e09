/*if max_attempts*/ coalesce("@max_attempts" /*if retries*/ + 1 /*end*/, $2) /*else*/ $2 /*end*/
