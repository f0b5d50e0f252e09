-- A row whose number is passed over while its transaction is open.
insert into posthaste.log (topic, ordering_key, payload) values ('order-events', 'open', '{"n":-1}')
