-- SPDX-License-Identifier: Apache-2.0
-- A script to begin with: it tells when the process has more threads than a limit.  The first
-- comment is what `script help` shows, with the parameters.
probing.api(1) -- the version that the script was written for; an older core refuses it

-- Parameters: `script run template.lua limit=200`.  The type is that of the default.
local args = probing.args{
    limit = {default = 100, min = 1, doc = "threads that are not too many"},
    period = {type = "duration", default = "10s", min = "10ms", doc = "how often it looks"},
}

-- A table keeps what it finds: script.template in SQL.
local found = probing.table("template", {threads = "i64"}, {keep = "1d", doc = "too many threads"})

-- A script that needs a plugin loads it, and ends with the reason where that can't be:
--     assert(probing.plugin("python"))
-- With rows instead of a timer (`script points` lists what there is):
--     probing.on("torch.step", "duration_ms > 500", function(e) print(e.step) end, {wait = true})

probing.every(args.period, function()
    local row = probing.query("select threads from process.memory"):next()
    if row.threads <= args.limit then return end
    found:add(row)       -- for later
    probing.publish(row) -- for who follows now
end)

probing.at_stop(function() probing.log("the template has ended") end)
