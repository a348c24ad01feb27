-- Messages that are one turn together: the items of an album, and what somebody wrote in one go.

alter table inbox add column joined_to uuid references inbox on delete cascade;  -- whose turn it is part of
create index inbox_joined on inbox (joined_to) where joined_to is not null;
