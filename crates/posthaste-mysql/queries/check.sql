-- Names every column that the table map does, so that a wrong one is found before the first claim.
select "@id", "@payload", "@status"
    /*if event_id*/ , "@event_id" /*end*/
    /*if seq*/ , "@seq" /*end*/
    /*if namespace*/ , "@namespace" /*end*/
    /*if topic*/ , "@topic" /*end*/
    /*if ordering_key*/ , "@ordering_key" /*end*/
    /*if tenant*/ , "@tenant" /*end*/
    /*if dedupe_key*/ , "@dedupe_key" /*end*/
    /*if event_type*/ , "@event_type" /*end*/
    /*if source*/ , "@source" /*end*/
    /*if aggregate_type*/ , "@aggregate_type" /*end*/
    /*if aggregate_id*/ , "@aggregate_id" /*end*/
    /*if content_type*/ , "@content_type" /*end*/
    /*if headers*/ , "@headers" /*end*/
    /*if content_hash*/ , "@content_hash" /*end*/
    /*if attempts*/ , "@attempts" /*end*/
    /*if max_attempts*/ , "@max_attempts" /*end*/
    /*if next_attempt_at*/ , "@next_attempt_at" /*end*/
    /*if locked_by*/ , "@locked_by" /*end*/
    /*if lease_token*/ , "@lease_token" /*end*/
    /*if locked_until*/ , "@locked_until" /*end*/
    /*if locked_at*/ , "@locked_at" /*end*/
    /*if last_error*/ , "@last_error" /*end*/
    /*if created_at*/ , "@created_at" /*end*/
    /*if updated_at*/ , "@updated_at" /*end*/
    /*if delivered_at*/ , "@delivered_at" /*end*/
    /*if version*/ , "@version" /*end*/
from "@outbox"
where false and "@status" in ('@open', '@delivered', '@dead' /*if lease_token*/ , '@processing' /*end*/)
