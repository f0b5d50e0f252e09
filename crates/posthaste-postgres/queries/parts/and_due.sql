/*if next_attempt_at*/ and ("@next_attempt_at" is null
    or "@next_attempt_at" <= /*as next_attempt_at*/ now() /*end*/) /*end*/
