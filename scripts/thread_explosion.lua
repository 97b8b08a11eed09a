-- SPDX-License-Identifier: Apache-2.0
-- Threads that become many: there are `growth` more than there were.  Says which ("worker-7" and
-- "worker-8" are one name), with a row of script.thread_explosion for each name, and tells who
-- follows.
local args = probing.args{
    period = {type = "duration", default = "5s", min = "10ms", doc = "how often it counts"},
    growth = {default = 50, min = 1, doc = "reports when there are this many more"},
}
local python = probing.plugin("python") -- knows the names that Python gave
local found = probing.table("thread_explosion", {name = "str", threads = "i64", grown = "i64"},
    {keep = "1d", doc = "groups of threads that have become more"})
local base, base_total = {}, nil

local function names()
    local groups = {}
    for r in probing.query(python and "select thread_name as name from python.backtrace where "
        .. "level = 0" or "select comm as name from cpu.tasks where probing = 0") do
        local name = (r.name or "?"):gsub("%d+", "*")
        groups[name] = (groups[name] or 0) + 1
    end
    return groups
end

probing.every(args.period, function()
    local total = probing.query("select count(*) as n from cpu.tasks where probing = 0"):next().n
    if base_total and total >= base_total and total < base_total + args.growth then return end
    local groups = names()
    for name, n in pairs(base_total and total > base_total and groups or {}) do
        local row = {name = name, threads = n, grown = n - (base[name] or 0)}
        if row.grown > 0 then
            found:add(row)
            probing.publish(row)
        end
    end
    base, base_total = groups, total
end)
