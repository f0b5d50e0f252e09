/*if topic*/ and (?3 is null or "@topic" in (select value from json_each(?3))) /*end*/
/*if tenant*/ and (?4 is null or "@tenant" = /*as tenant*/ ?4 /*end*/) /*end*/
