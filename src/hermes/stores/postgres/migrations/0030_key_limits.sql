-- API keys are principals: what each may spend and do. Keys that there were before have no limits but those that they had, and may name
-- every user, as before.

alter table api_keys
    add column day_micro_usd   bigint check (day_micro_usd >= 0),
    add column month_micro_usd bigint check (month_micro_usd >= 0),
    add column day_tokens      bigint check (day_tokens > 0),
    add column month_tokens    bigint check (month_tokens > 0),
    add column minute_requests bigint check (minute_requests > 0),
    add column minute_tokens   bigint check (minute_tokens > 0),
    add column calls_at_once   bigint check (calls_at_once > 0),
    add column models          text[],
    add column users           text[],               -- patterns; null: any name, but no person of a messaging channel
    add column networks        text[],
    add column expires_at      timestamptz;
update api_keys set users = '{*}';

-- The counters of a key are rebuilt from this index without reading the table.
create index calls_by_key on calls (api_key_id, day) include (tokens, micro_usd, id, created_at) where api_key_id is not null;

-- A private conversation belongs to its user: another user who calls a channel by the same name gets a conversation of its own. A room that
-- others have written in already stays one, and its opener's next message without a channel begins a private conversation.

alter table conversations add column is_private boolean not null default false;
update conversations set is_private = true
from user_channels as own
where conversations.platform = 'rest' and not conversations.is_shared
    and own.account_id = conversations.account_id and own.platform = 'rest' and own.sender_id = conversations.channel_id
    and own.user_id = conversations.user_id;
