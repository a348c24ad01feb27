-- The tools of MCP servers as they were first used.

-- name: check
insert into tool_pins (server, tool, digest, definition) values (%(server)s, %(tool)s, %(digest)s, %(definition)s)
on conflict (server, tool) do update set
    waiting = nullif(excluded.digest, tool_pins.digest),
    waiting_definition = case when excluded.digest <> tool_pins.digest then excluded.definition end,
    changed_at = case when excluded.digest = tool_pins.digest then null when tool_pins.waiting = excluded.digest then tool_pins.changed_at
        else now() end
returning digest = %(digest)s

-- name: list
select server, tool, digest, definition, pinned_at, pinned_by, waiting, waiting_definition, changed_at from tool_pins order by server, tool

-- name: accept
update tool_pins set digest = waiting, definition = waiting_definition, waiting = null, waiting_definition = null, changed_at = null,
    pinned_at = now(), pinned_by = %(by)s
where server = %(server)s and tool = %(tool)s and waiting = %(digest)s
returning tool
