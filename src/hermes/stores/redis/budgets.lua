-- Budgets of users and the global spend. The text before the first name is put in front of every script.
--
--   hermes:budgets:generation                  {run of the server}:{random}. Counters of another generation are not used.
--   hermes:budgets:{user}:2026-11              a user's month: generation, used, held; used:15, held:15, micro_usd:15 for a day of it;
--                                              alerted:month:80, alerted:15:80, … once the operator was alerted
--   hermes:budgets:{user}:2026-11:leases       reservations by the time when they end in ms: {hold}:{day}:{tokens}
--   hermes:budgets:{user}:2026-11-15:settled   the holds of that day that are settled
--   hermes:budgets:keys:{key}:2026-11          an API key's month: generation, rebuilt (when, in ms), tokens, usd, held:tokens, held:usd; the
--                                              same with :15 for a day of it. Dollars are micro-dollars
--   hermes:budgets:keys:{key}:2026-11:leases   as above: {hold}:{day}:{tokens}:{micro_usd}:{second}
--   hermes:budgets:keys:{key}:calls            the holds of its calls under way, by the time when they end in ms
--   hermes:budgets:keys:{key}:settled          the holds that were settled lately, by the time of that in ms
--   hermes:budgets:keys:{key}:minute           requests and tokens by second: r:{second}, t:{second}
--   agnt:global_spend:2026-11-15               the global spend in micro-dollars
--   hermes:budgets:global:2026-11-15           generation and alerted:… of that counter; …:counted the calls that a rebuild found in SQL
--   hermes:budgets:agents:2026-11-15           the spend of agents in micro-dollars: generation, fleet, agent:{name}, alerted:…;
--                                              …:counted as above
--   …:rebuild                                  held by the process that rebuilds
--
-- A missing counter never means zero, it means: rebuild. Amounts are passed on as the strings they came as, because Lua rounds a number that
-- it gives to a command to 14 digits; comparisons are of whole numbers below 2^53, and exact.

local GENERATION = KEYS[1]

-- A server that was restarted from its disk, or replaced by its replica, has counters that look right and may be old. Its run id is a new
-- one; if an ACL hides the run id, only a loss of all keys is noticed.
local function run_of_server()
    local info = redis.pcall('INFO', 'server')
    return type(info) == 'string' and info:match('run_id:(%x+)') or ''
end

local known_generation

-- Read once in each run of a script: the server needs longer to say its run id than for all the rest.
local function generation()
    if known_generation == nil then
        local known = redis.call('GET', GENERATION)
        local run = run_of_server() .. ':'
        known_generation = known and known:sub(1, #run) == run and known
    end
    return known_generation
end

local function is_current(hash)
    local known = generation()
    return known and redis.call('HGET', hash, 'generation') == known
end

local function start_generation(random)
    local known = generation()
    if not known then
        known = run_of_server() .. ':' .. random
        redis.call('SET', GENERATION, known)
        known_generation = known
    end
    return known
end

local function number(value)
    return tonumber(value or 0)
end

local function give_back(month, leases, lease)
    if redis.call('ZREM', leases, lease) == 1 then
        local day, tokens = lease:match('^%x+:(%d+):(%d+)$')
        redis.call('HINCRBY', month, 'held', '-' .. tokens)
        redis.call('HINCRBY', month, 'held:' .. day, '-' .. tokens)
    end
end

local function expire(month, leases, now)
    for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do
        give_back(month, leases, lease)
    end
end

-- Finds the thresholds that are passed for the first time, and adds {label, percent} for each.
local function pass(hash, label, used, limit, passed)
    for _, percent in ipairs({80, 100}) do
        if limit > 0 and used * 100 >= limit * percent and redis.call('HSETNX', hash, 'alerted:' .. label .. ':' .. percent, 1) == 1 then
            passed[#passed + 1] = label
            passed[#passed + 1] = percent
        end
    end
end

-- --- API keys: the same for what they use, and besides it what they did in the last minute

local MINUTE_S, SETTLED_MS, REBUILT_MS = 60, 900000, 240000

local function change_key(month, prefix, day, tokens, micro_usd)
    redis.call('HINCRBY', month, prefix .. 'tokens', tokens)
    redis.call('HINCRBY', month, prefix .. 'tokens:' .. day, tokens)
    redis.call('HINCRBY', month, prefix .. 'usd', micro_usd)
    redis.call('HINCRBY', month, prefix .. 'usd:' .. day, micro_usd)
end

local function minus(amount)
    return amount == '0' and amount or '-' .. amount
end

local function give_back_key(month, leases, lease)
    if redis.call('ZREM', leases, lease) == 1 then
        local day, tokens, micro_usd = lease:match('^%x+:(%d+):(%d+):(%d+):')
        change_key(month, 'held:', day, minus(tokens), minus(micro_usd))
        return true
    end
end

local function expire_key(month, leases, calls, now)
    for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do
        give_back_key(month, leases, lease)
    end
    redis.call('ZREMRANGEBYSCORE', calls, '-inf', now)
end

-- The amounts of one kind ('r:' or 't:') in the last minute: their sum, and {second, amount} by time. A minute is 61 whole seconds here: at
-- its ends seconds are counted that are only partly in it, so that no 60 seconds ever have more than the limit. Seconds that are long over,
-- or that a clock far ahead has written, are deleted.
local function last_minute(minute, kind, now)
    local second, sum, found, gone = math.floor(tonumber(now) / 1000), 0, {}, {}
    local fields = redis.call('HGETALL', minute)
    for at = 1, #fields, 2 do
        local of, since = fields[at]:sub(1, 2), tonumber(fields[at]:sub(3))
        if since < second - MINUTE_S or since > second + MINUTE_S then
            gone[#gone + 1] = fields[at]
        elseif of == kind and tonumber(fields[at + 1]) > 0 then
            found[#found + 1] = {since, tonumber(fields[at + 1])}
            sum = sum + tonumber(fields[at + 1])
        end
    end
    if #gone > 0 then
        redis.call('HDEL', minute, unpack(gone))
    end
    table.sort(found, function(a, b) return a[1] < b[1] end)
    return sum, found
end

-- In how many ms so much of the last minute is over that `amount` fits below the limit; -1 if it never fits.
local function wait_ms(sum, found, amount, limit, now)
    if amount > limit then
        return -1
    end
    for _, each in ipairs(found) do
        sum = sum - each[2]
        if sum + amount <= limit then
            return math.max(1, (each[1] + MINUTE_S + 1) * 1000 - tonumber(now))
        end
    end
    return 1
end

local function count_second(minute, kind, second, amount)
    redis.call('HINCRBY', minute, kind .. second, amount)
    redis.call('EXPIRE', minute, 3 * MINUTE_S)
end

-- The limit that a key's call does not fit below any more, with the ms to wait where the limit is one of a minute; nil if there is none.
-- An empty text is no limit.
local function reached_limit(month, calls, minute, now, day, tokens, micro_usd, limits)
    local used = redis.call('HMGET', month, 'usd', 'held:usd', 'tokens', 'held:tokens',
        'usd:' .. day, 'held:usd:' .. day, 'tokens:' .. day, 'held:tokens:' .. day)
    local windows = {{'month_usd', 1, micro_usd}, {'month_tokens', 3, tokens}, {'day_usd', 5, micro_usd}, {'day_tokens', 7, tokens}}
    for _, window in ipairs(windows) do
        local name, at, amount = unpack(window)
        local limit = tonumber(limits[name] or '')
        if limit and number(used[at]) + number(used[at + 1]) + tonumber(amount) > limit then
            return {name, 0}
        end
    end
    local at_once = tonumber(limits.at_once or '')
    if at_once and redis.call('ZCARD', calls) >= at_once then
        return {'at_once', 0}
    end
    local of_minute = tonumber(limits.minute_tokens or '')
    if of_minute then
        local sum, found = last_minute(minute, 't:', now)
        if sum + tonumber(tokens) > of_minute then
            return {'minute_tokens', wait_ms(sum, found, tonumber(tokens), of_minute, now)}
        end
    end
end

-- name: reserve
-- KEYS generation month leases settled, of a key: month leases calls settled minute
-- ARGV now_ms day lease tokens day_limit month_limit expires_ms ttl_s, of a key: lease micro_usd limits as JSON
local month, leases, settled, key_month, key_leases, key_calls, key_settled, key_minute = unpack(KEYS, 2)
local now, day, lease, tokens, day_limit, month_limit, expires, ttl, key_lease, micro_usd, limits = unpack(ARGV)
if not is_current(month) then
    return {'rebuild'}
end
if key_month and not is_current(key_month) then
    return {'rebuild_key'}
end
expire(month, leases, now)
if redis.call('ZSCORE', leases, lease) then
    return {'reserved'} -- by an earlier try, whose reply came too late
end
if redis.call('SISMEMBER', settled, lease:match('^%x+')) == 1 then
    return {'given up'} -- this try comes too late: its caller no longer waits
end
local used = redis.call('HMGET', month, 'used', 'held', 'used:' .. day, 'held:' .. day)
if number(used[1]) + number(used[2]) + tonumber(tokens) > tonumber(month_limit) then
    return {'month'}
end
if number(used[3]) + number(used[4]) + tonumber(tokens) > tonumber(day_limit) then
    return {'day'}
end
if key_month then
    expire_key(key_month, key_leases, key_calls, now)
    local hold = lease:match('^%x+')
    if redis.call('ZSCORE', key_settled, hold) then
        return {'given up'} -- the user's month was rebuilt meanwhile, and no longer knows it
    end
    local reached = reached_limit(key_month, key_calls, key_minute, now, day, tokens, micro_usd, cjson.decode(limits))
    if reached then
        return reached
    end
    change_key(key_month, 'held:', day, tokens, micro_usd)
    redis.call('ZADD', key_leases, expires, key_lease)
    redis.call('EXPIRE', key_leases, ttl)
    redis.call('ZADD', key_calls, expires, hold)
    redis.call('EXPIRE', key_calls, ttl)
    count_second(key_minute, 't:', math.floor(tonumber(now) / 1000), tokens)
end
redis.call('HINCRBY', month, 'held', tokens)
redis.call('HINCRBY', month, 'held:' .. day, tokens)
redis.call('ZADD', leases, expires, lease)
redis.call('EXPIRE', leases, ttl)
return {'reserved'}

-- name: settle
-- KEYS as for reserve · ARGV day hold lease tokens micro_usd day_limit month_limit settled_ttl_s, of a key: lease now_ms recorded_ms
local month, leases, settled, key_month, key_leases, key_calls, key_settled, key_minute = unpack(KEYS, 2)
local day, hold, lease, tokens, micro_usd, day_limit, month_limit, ttl, key_lease, now, recorded = unpack(ARGV)
if not is_current(month) then
    return {'rebuild'}
end
if key_month then
    if not is_current(key_month) then
        return {'rebuild_key'}
    end
    give_back_key(key_month, key_leases, key_lease)
    redis.call('ZREM', key_calls, hold)
    local is_counted = redis.call('ZSCORE', key_settled, hold)
    if not is_counted then
        redis.call('ZADD', key_settled, now, hold)
        local reserved, second = key_lease:match('^%x+:%d+:(%d+):%d+:(%d+)$')
        if redis.call('HEXISTS', key_minute, 't:' .. second) == 1 then
            count_second(key_minute, 't:', second, string.format('%d', tonumber(tokens) - tonumber(reserved)))
        end
        -- A call that was recorded well before the last rebuild is among what that found; of later ones it has noted the holds.
        if number(recorded) >= number(redis.call('HGET', key_month, 'rebuilt')) - REBUILT_MS then
            change_key(key_month, '', day, tokens, micro_usd)
        end
    end
    redis.call('ZREMRANGEBYSCORE', key_settled, '-inf', string.format('%d', tonumber(now) - SETTLED_MS))
    redis.call('EXPIRE', key_settled, ttl)
end
give_back(month, leases, lease)
if redis.call('SADD', settled, hold) == 0 then
    tokens, micro_usd = '0', '0' -- settled before, or found in SQL by a rebuild; after a rebuild the thresholds are not checked yet
end
redis.call('EXPIRE', settled, ttl)
local passed = {'settled'}
pass(month, day, redis.call('HINCRBY', month, 'used:' .. day, tokens), tonumber(day_limit), passed)
pass(month, 'month', redis.call('HINCRBY', month, 'used', tokens), tonumber(month_limit), passed)
redis.call('HINCRBY', month, 'micro_usd:' .. day, micro_usd)
return passed

-- name: release
-- KEYS as for reserve · ARGV lease, of a key: lease
local month, leases, _, key_month, key_leases, key_calls, _, key_minute = unpack(KEYS, 2)
give_back(month, leases, ARGV[1])
if key_month and give_back_key(key_month, key_leases, ARGV[2]) then
    local hold, tokens, second = ARGV[2]:match('^(%x+):%d+:(%d+):%d+:(%d+)$')
    redis.call('ZREM', key_calls, hold)
    if redis.call('HEXISTS', key_minute, 't:' .. second) == 1 then
        count_second(key_minute, 't:', second, minus(tokens))
    end
end

-- name: count_request
-- KEYS generation minute · ARGV now_ms limit
local minute, now, limit = KEYS[2], ARGV[1], tonumber(ARGV[2])
local sum, found = last_minute(minute, 'r:', now)
if sum >= limit then
    return {'minute_requests', wait_ms(sum, found, 1, limit, now)}
end
count_second(minute, 'r:', math.floor(tonumber(now) / 1000), 1)
return {'counted'}

-- name: key_used
-- KEYS generation month leases calls settled minute · ARGV now_ms day
local month, leases, calls, _, minute = unpack(KEYS, 2)
local now, day = unpack(ARGV)
if not is_current(month) then
    return {'rebuild'}
end
expire_key(month, leases, calls, now)
local used = redis.call('HMGET', month, 'usd:' .. day, 'held:usd:' .. day, 'usd', 'held:usd',
    'tokens:' .. day, 'held:tokens:' .. day, 'tokens', 'held:tokens')
local reply = {'used'}
for at = 1, 8, 2 do
    reply[#reply + 1] = string.format('%d', number(used[at]) + number(used[at + 1]))
end
reply[#reply + 1] = last_minute(minute, 'r:', now)
reply[#reply + 1] = last_minute(minute, 't:', now)
reply[#reply + 1] = redis.call('ZCARD', calls)
return reply

-- name: rebuild_key
-- KEYS generation month leases calls settled minute rebuild · ARGV token ttl_s now_ms
--      {"tokens", "usd", "days": [[day, tokens, micro_usd], …], "settled": [hold, …], "leases": [[lease, expires_ms], …]}
local month, leases, calls, settled, _, rebuild = unpack(KEYS, 2)
local token, ttl, now, counted = ARGV[1], ARGV[2], ARGV[3], cjson.decode(ARGV[4])
if redis.call('GET', rebuild) ~= token then
    return 0
end
redis.call('DEL', rebuild, month)
redis.call('HSET', month, 'generation', start_generation(token), 'rebuilt', now, 'tokens', counted.tokens, 'usd', counted.usd)
for _, day in ipairs(counted.days) do
    redis.call('HSET', month, 'tokens:' .. day[1], day[2], 'usd:' .. day[1], day[3])
end
redis.call('EXPIRE', month, ttl)
for _, hold in ipairs(counted.settled) do
    redis.call('ZADD', settled, now, hold)
end
for _, lease in ipairs(counted.leases) do
    redis.call('ZADD', leases, lease[2], lease[1])
    redis.call('ZADD', calls, lease[2], lease[1]:match('^%x+'))
end
for _, lease in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    local day, tokens, micro_usd = lease:match('^%x+:(%d+):(%d+):(%d+):')
    change_key(month, 'held:', day, tokens, micro_usd)
end
redis.call('EXPIRE', leases, ttl)
redis.call('EXPIRE', calls, ttl)
redis.call('EXPIRE', settled, ttl)
return 1

-- name: used
-- KEYS generation month leases · ARGV now_ms day
local month, leases, day = KEYS[2], KEYS[3], ARGV[2]
if not is_current(month) then
    return {'rebuild'}
end
expire(month, leases, ARGV[1])
local used = redis.call('HMGET', month, 'used:' .. day, 'held:' .. day, 'micro_usd:' .. day, 'used', 'held')
return {'used', used[1] or '0', used[2] or '0', used[3] or '0', used[4] or '0', used[5] or '0'}

-- name: lock
-- KEYS generation hash rebuild · ARGV token ms
if is_current(KEYS[2]) then
    return 'current'
end
return redis.call('SET', KEYS[3], ARGV[1], 'NX', 'PX', ARGV[2]) and 'yours' or 'busy'

-- name: unlock
-- KEYS generation rebuild · ARGV token
if redis.call('GET', KEYS[2]) == ARGV[1] then
    redis.call('DEL', KEYS[2])
end

-- name: rebuild_user
-- KEYS generation month leases rebuild settled… · ARGV token ttl_s settled_ttl_s
--      {"used", "days": [[day, tokens, micro_usd], …], "settled": [[hold, …], …] for the keys, "leases": [[lease, expires_ms], …]}
local month, leases, rebuild = KEYS[2], KEYS[3], KEYS[4]
local token, ttl, settled_ttl, counted = ARGV[1], ARGV[2], ARGV[3], cjson.decode(ARGV[4])
if redis.call('GET', rebuild) ~= token then
    return 0 -- it took too long: another process rebuilds or has rebuilt, or all keys were lost again
end
redis.call('DEL', rebuild, month)
redis.call('HSET', month, 'generation', start_generation(token), 'used', counted.used)
for _, day in ipairs(counted.days) do
    redis.call('HSET', month, 'used:' .. day[1], day[2], 'micro_usd:' .. day[1], day[3])
end
redis.call('EXPIRE', month, ttl)
for number, holds in ipairs(counted.settled) do
    local settled = KEYS[4 + number]
    redis.call('DEL', settled)
    for _, hold in ipairs(holds) do
        redis.call('SADD', settled, hold)
    end
    redis.call('EXPIRE', settled, settled_ttl)
end
for _, lease in ipairs(counted.leases) do
    redis.call('ZADD', leases, lease[2], lease[1])
end
for _, lease in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    local day, tokens = lease:match('^%x+:(%d+):(%d+)$')
    redis.call('HINCRBY', month, 'held', tokens)
    redis.call('HINCRBY', month, 'held:' .. day, tokens)
end
redis.call('EXPIRE', leases, ttl)
return 1

-- name: admit
-- KEYS generation counter state · ARGV cap ('0' for none)
local spent = redis.call('GET', KEYS[2])
if not spent or not is_current(KEYS[3]) then
    return {'rebuild'}
end
local passed = {spent}
pass(KEYS[3], 'cap', tonumber(spent), tonumber(ARGV[1]), passed)
return passed

-- name: add
-- KEYS generation counter state counted · ARGV micro_usd call, of each call
local counter, state, counted = KEYS[2], KEYS[3], KEYS[4]
if redis.call('EXISTS', counter) == 0 or not is_current(state) then
    return {'rebuild'}
end
for at = 1, #ARGV, 2 do
    local micro_usd, call = ARGV[at], ARGV[at + 1]
    if call == '' or redis.call('SISMEMBER', counted, call) == 0 then
        redis.call('INCRBY', counter, micro_usd)
    end
end
return {'added'}

-- name: rebuild_global
-- KEYS generation counter state counted rebuild · ARGV token ttl_s micro_usd ceiling {call, …} as JSON
local counter, state, counted, rebuild = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, ttl, micro_usd, ceiling, calls = ARGV[1], ARGV[2], ARGV[3], ARGV[4], cjson.decode(ARGV[5])
if redis.call('GET', rebuild) ~= token then
    return 0
end
redis.call('DEL', rebuild, counted)
-- The operator may have set the ceiling by hand. A rebuild does not release it.
if number(redis.call('GET', counter)) >= tonumber(ceiling) then
    micro_usd = ceiling
end
redis.call('SET', counter, micro_usd, 'EX', ttl)
redis.call('HSET', state, 'generation', start_generation(token))
redis.call('EXPIRE', state, ttl)
for _, call in ipairs(calls) do
    redis.call('SADD', counted, call)
end
redis.call('EXPIRE', counted, ttl)
return 1

-- name: kill
-- KEYS generation counter · ARGV ceiling ttl_s
if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('SET', KEYS[2], ARGV[1], 'KEEPTTL')
else
    redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
end

-- name: admit_agent
-- KEYS generation agents · ARGV agent agent_cap fleet_cap ('0' for none)
local agents, agent = KEYS[2], ARGV[1]
if not is_current(agents) then
    return {'rebuild'}
end
local spent = redis.call('HMGET', agents, 'agent:' .. agent, 'fleet')
local passed = {spent[1] or '0', spent[2] or '0'}
-- With the cap in the label: after the operator has raised a cap, its thresholds are new ones.
pass(agents, 'agent:' .. ARGV[2] .. ':' .. agent, number(spent[1]), tonumber(ARGV[2]), passed)
pass(agents, 'fleet:' .. ARGV[3], number(spent[2]), tonumber(ARGV[3]), passed)
return passed

-- name: add_agent
-- KEYS generation agents counted · ARGV agent micro_usd call
local agents, counted = KEYS[2], KEYS[3]
local agent, micro_usd, call = unpack(ARGV)
if not is_current(agents) then
    return {'rebuild'}
end
if redis.call('SISMEMBER', counted, call) == 0 then
    redis.call('HINCRBY', agents, 'agent:' .. agent, micro_usd)
    redis.call('HINCRBY', agents, 'fleet', micro_usd)
end
return {'added'}

-- name: spent_by_agents
-- KEYS generation agents
if not is_current(KEYS[2]) then
    return {'rebuild'}
end
return redis.call('HGETALL', KEYS[2])

-- name: rebuild_agents
-- KEYS generation agents counted rebuild · ARGV token ttl_s fleet [[agent, micro_usd], …] and [call, …] as JSON; amounts as strings
local agents, counted, rebuild = KEYS[2], KEYS[3], KEYS[4]
local token, ttl, fleet = ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', rebuild) ~= token then
    return 0
end
redis.call('DEL', rebuild, agents, counted)
redis.call('HSET', agents, 'generation', start_generation(token), 'fleet', fleet)
for _, spent in ipairs(cjson.decode(ARGV[4])) do
    redis.call('HSET', agents, 'agent:' .. spent[1], spent[2])
end
redis.call('EXPIRE', agents, ttl)
for _, call in ipairs(cjson.decode(ARGV[5])) do
    redis.call('SADD', counted, call)
end
redis.call('EXPIRE', counted, ttl)
return 1

-- name: delete_keys
-- KEYS generation key…
redis.call('DEL', unpack(KEYS, 2))
