-- Donations, events, and those that lack the other.
select (select count(*) from donation_history),
       (select count(*) from donation_outbox),
       (select count(*) from donation_history h
         where not exists (select 1 from donation_outbox o where o.request_id = h.request_id))
       + (select count(*) from donation_outbox o
           where not exists (select 1 from donation_history h where h.request_id = o.request_id))
