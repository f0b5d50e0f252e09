-- All points, and the members whose points are not what their history says. Guests began with as many as are given.
select cast(sum(m.point) as signed),
       cast(sum(m.point <> if(m.uuid like 'guest%', ?, 0)
                           + coalesce((select sum(h.amount) from donation_history h where h.admin_uuid = m.uuid), 0)
                           - coalesce((select sum(h.amount) from donation_history h where h.guest_uuid = m.uuid), 0))
            as signed)
  from member m
