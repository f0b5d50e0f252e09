select name from sqlite_schema where type = 'table' and name not like 'sqlite\_%' escape '\' order by name
