-- SPDX-License-Identifier: Apache-2.0
-- Memory that grows steadily: the anonymous memory of the process follows a line upwards for a
-- whole span.  Kept in script.leak, and told to who follows; script.leak_samples has what was
-- measured.
local args = probing.args{
    span = {type = "duration", default = "10m", min = "1s", doc = "looks at this time back"},
    growth = {type = "bytes", default = "50MB", doc = "reports from this much more in a span"},
}
local LOOKS = 30     -- in a span
local STEADY = 0.95  -- correlation with time: 1 is a line, 0.87 a single jump
local samples = probing.table("leak_samples", {bytes = "i64"},
    {keep = "1d", doc = "anonymous resident memory of the process"})
local leaks = probing.table("leak", {bytes = "i64", grown = "i64", per_minute = "i64"},
    {keep = "1d", doc = "times in which the memory of the process grew steadily"})
local window = probing.window("script.leak_samples.bytes", args.span)

probing.every(args.span / LOOKS, function()
    samples:add(probing.query("select anon_bytes as bytes from process.memory"):next())
end)
probing.every(args.span, function()
    local slope, spread = window:slope(), window:stddev()
    if not slope or (window:count() or 0) < LOOKS // 2 then return end
    local grown = slope * args.span
    if grown >= args.growth and grown >= STEADY * 12 ^ 0.5 * spread then
        local row = {bytes = window:last(), grown = math.floor(grown),
            per_minute = math.floor(slope * 60)}
        leaks:add(row)
        probing.publish(row)
    end
end)
