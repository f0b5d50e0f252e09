/*if namespace*/ "@namespace:text" = $1 /*else*/ $1::text is not null /*end*/
    and /*if topic*/ ($3::text[] is null or "@topic:text" = any ($3)) /*else*/ $3::text[] is null /*end*/
    and /*if tenant*/ ($4::text is null or "@tenant:text" = $4) /*else*/ $4::text is null /*end*/
