/*if namespace*/ and "@namespace" = $1 /*end*/
/*if topic*/ and ($3 or "@topic" in ($4)) /*end*/
/*if tenant*/ and ($5 is null or "@tenant" = $5) /*end*/
