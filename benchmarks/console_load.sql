-- A million turns for benchmarks/console.py. Run in this order, each with the same parameters. The rows have the shape that real turns leave;
-- sealed columns hold bytes that no page of this benchmark opens.

-- name: users
insert into users (id, state, tier, language, referral_code, created_at)
select ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'active', (array['free', 'plus', 'pro'])[1 + n %% 3], 'en', 'bench' || n,
    now() - interval '60 days' + n * interval '1 second'
from generate_series(1, %(users)s) as n

-- name: channels
insert into user_channels (account_id, platform, sender_id, user_id)
select 'bench', (array['whatsapp', 'telegram', 'rest'])[1 + n %% 3], '+62812' || lpad(n::text, 7, '0'),
    ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid
from generate_series(1, %(users)s) as n

-- name: conversations
insert into conversations (id, account_id, platform, channel_id, user_id, last_seq)
select ('00000000-0000-4000-9000-' || lpad(to_hex(n), 12, '0'))::uuid, 'bench', (array['whatsapp', 'telegram', 'rest'])[1 + n %% 3], 'channel' || n,
    ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(turns)s / %(users)s + 1
from generate_series(1, %(users)s) as n

-- name: sessions
insert into sessions (id, account_id, conversation_id, user_id, seed, head, length, started_at, last_at)
select ('00000000-0000-4000-a000-' || lpad(to_hex(n), 12, '0'))::uuid, 'bench', ('00000000-0000-4000-9000-' || lpad(to_hex(n), 12, '0'))::uuid,
    ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, '\x00', md5(n::text), 0,
    now() - interval '60 days' + n * interval '1 second', now()
from generate_series(1, %(users)s) as n

-- name: turns
create unlogged table bench_turns as
select n, md5('turn' || n)::uuid as turn_id, (1 + (n::bigint * 7919) %% %(users)s)::integer as u, now() - (%(turns)s - n) * (interval '60 days' / %(turns)s) as at,
    (array['whatsapp', 'telegram', 'rest'])[1 + (1 + (n::bigint * 7919) %% %(users)s) %% 3] as platform, (array['free', 'plus', 'pro'])[1 + n %% 3] as tier,
    (array['hermes', 'concierge', 'support', 'sales'])[1 + n %% 4] as agent, (array['claude-haiku', 'claude-sonnet', 'llama'])[1 + n %% 3] as model,
    n %% 50 = 0 as is_failed, n %% 5 = 0 as has_tool
from generate_series(1, %(turns)s) as n

-- name: inbox
insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, state, attempts, envelope, received_at, ended_at)
select turn_id, 'bench', 'key' || n, ('00000000-0000-4000-9000-' || lpad(to_hex(u), 12, '0'))::uuid,
    ('00000000-0000-4000-8000-' || lpad(to_hex(u), 12, '0'))::uuid, n, 'done', 1 + (n %% 100 = 0)::int, '\x00', at - interval '1 second', at
from bench_turns

-- name: runs
insert into runs (turn_id, account_id, conversation_id, user_id, epoch, attempt, state, started_at, ended_at, claimed_at)
select turn_id, 'bench', ('00000000-0000-4000-9000-' || lpad(to_hex(u), 12, '0'))::uuid,
    ('00000000-0000-4000-8000-' || lpad(to_hex(u), 12, '0'))::uuid, n, 1 + (n %% 100 = 0)::int, 'done', at - interval '1 second', at,
    at - interval '1 second'
from bench_turns

-- name: interactions
insert into interactions (turn_id, account_id, user_id, session_id, platform, meta, created_at)
select turn_id, 'bench', ('00000000-0000-4000-8000-' || lpad(to_hex(u), 12, '0'))::uuid,
    ('00000000-0000-4000-a000-' || lpad(to_hex(u), 12, '0'))::uuid, platform,
    jsonb_build_object('outcome', case when is_failed then 'retry_later' else 'answered' end, 'tier', tier, 'agent', agent, 'llm_model', model, 'attempt', 1,
        'llm_backend', 'anthropic', 'tokens_in', 1200, 'tokens_out', 180, 'cost_usd', 0.0021, 'language', 'en', 'intent', 'text',
        'tools_gated', case when has_tool then 'full' else 'none' end, 'llm_cache_hit', false, 'semantic_recall_used', n %% 4 = 0, 'soul_load_ms', 4,
        'head', md5(n::text), 'calls', jsonb_build_array(md5('call' || n)), 'nodes', jsonb_build_array(md5('a' || n), md5('b' || n)),
        'tools', case when has_tool then jsonb_build_array(jsonb_build_object('name', 'venue_search', 'ms', 12, 'is_error', n %% 500 = 0)) else '[]' end),
    at
from bench_turns

-- name: calls
insert into calls (id, turn_id, user_id, account_id, session_id, source, tier, backend, model, answered_by, attempts, tokens_in, tokens_out, cache_read,
    cache_write, cache_write_1h, micro_usd, rate, is_estimated, cache_hit, outcome, latency_ms, day, created_at, purpose, agent, platform)
select md5('call' || n || '/' || part)::uuid, turn_id, ('00000000-0000-4000-8000-' || lpad(to_hex(u), 12, '0'))::uuid, 'bench',
    ('00000000-0000-4000-a000-' || lpad(to_hex(u), 12, '0'))::uuid, 'router', tier, 'anthropic', model, model,
    case when n %% 40 = 0 then '[{"name": "claude-sonnet", "backend": "anthropic", "model": "claude-sonnet", "outcome": "Overloaded", "ms": 300, "status": 529},
        {"name": "claude-haiku", "backend": "anthropic", "model": "claude-haiku", "outcome": "answered", "ms": 900, "status": 200}]'::jsonb
        else '[{"name": "claude-haiku", "backend": "anthropic", "model": "claude-haiku", "outcome": "answered", "ms": 900, "status": 200}]'::jsonb end,
    1200, 180, 400, 0, 0, 2100 + n %% 97, '{"tokens_in": 1000000, "tokens_out": 5000000}', false, false,
    case when is_failed then 'failed' else 'answered' end, 900 + (n %% 1000)::int, (at at time zone 'utc')::date, at,
    (array['answer', 'conclude'])[part], agent, platform
from bench_turns, generate_series(1, 2) as part where part = 1 or n %% 3 = 0

-- name: outbox
insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, state, tries, body, put_at, touched_at)
select 'bench', platform, 'channel' || u, ('00000000-0000-4000-9000-' || lpad(to_hex(u), 12, '0'))::uuid,
    ('00000000-0000-4000-8000-' || lpad(to_hex(u), 12, '0'))::uuid, turn_id, n, 0, 'sent', 1, '\x00', at, at
from bench_turns

-- name: credits
insert into credit_entries (user_id, event, kind, amount, turn_id, attempt, created_at)
select ('00000000-0000-4000-8000-' || lpad(to_hex(u), 12, '0'))::uuid, turn_id || '/1', kind, 1, turn_id, 1, at
from bench_turns, unnest(array['reserve', 'post']) as kind

-- name: notes
-- The ten steps of every `noted`-th turn.
insert into run_events (turn_id, step, index, type, attempt, facts, started_at, done_at, epoch)
select turn_id, type, 0, type, 1, jsonb_build_object('began_us', place * 20000, 'us', 15000 + place * 300, 'ms', 15), at - interval '1 second', at, n
from bench_turns, unnest(array['user_resolved', 'credit_reserved', 'soul_loaded', 'history_loaded', 'intent_classified', 'messages_built', 'tools_gated',
    'model_answered', 'tools_finished', 'turn_recorded']) with ordinality as step (type, place)
where n %% %(noted)s = 0 or n > %(turns)s - 5000

-- name: forget_numbers
drop table bench_turns
