-- SPDX-License-Identifier: Apache-2.0
-- File descriptors that are opened and not closed: the least number of open ones in a span has been
-- higher than in the span before, several times in a row.  Kept in script.fd_leak, and told to who
-- follows.
local args = probing.args{
    span = {type = "duration", default = "1m", min = "100ms", doc = "compares spans this long"},
    spans = {default = 3, min = 1, doc = "reports after this many rises in a row"},
    growth = {default = 10, min = 1, doc = "descriptors more than in the span before"},
}
local LOOKS = 10 -- in a span: one look might see connections that come and go
local leaks = probing.table("fd_leak", {open = "i64", grown = "i64", limit = "i64"},
    {keep = "1d", doc = "file descriptors that were opened and not closed"})
local NUMBER = "select value::bigint as n from probing.metrics where name = ?"
local looks, least, before, first, rises = 0, math.huge, nil, nil, 0

probing.every(args.span / LOOKS, function()
    least = math.min(least, probing.query(NUMBER, "process_open_fds"):next().n)
    looks = looks + 1
    if looks < LOOKS then return end
    if before and least >= before + args.growth then
        rises = rises + 1
    else
        first, rises = least, 0
    end
    if rises >= args.spans then
        local row = {open = least, grown = least - first,
            limit = probing.query(NUMBER, "process_max_fds"):next().n}
        leaks:add(row)
        probing.publish(row)
        first, rises = least, 0
    end
    looks, least, before = 0, math.huge, least
end)
