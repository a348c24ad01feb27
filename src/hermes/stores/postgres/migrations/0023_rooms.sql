-- A shared room: a conversation that several people read. A session of it holds nothing private and names the speaker of each message;
-- the sessions that there were before name none, so a shared room goes on in a new one.

alter table conversations add column is_shared boolean not null default false;
alter table sessions add column is_shared boolean not null default false;

update conversations set is_shared = true
where (platform = 'telegram' and channel_id like '-%')
    or (platform = 'whatsapp' and channel_id like 'group:%')
    or (platform = 'rest' and exists (
        select from inbox where inbox.conversation_id = conversations.id and inbox.user_id <> conversations.user_id
    ));
