-- Behind an API key the user of a request that names none is called `default`, as everywhere. It was called by an empty name.

update user_channels set sender_id = sender_id || 'default'
where platform = 'completions' and sender_id like '%/' and not exists (
    select from user_channels as taken where taken.account_id = user_channels.account_id
        and taken.platform = 'completions' and taken.sender_id = user_channels.sender_id || 'default'
);
