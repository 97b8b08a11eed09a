-- SPDX-License-Identifier: Apache-2.0
-- Training steps that took much longer than the median: kept in script.slow_steps, and told to who
-- follows.  Needs plugin torch.
local args = probing.args{
    factor = {default = 2.0, min = 1, doc = "times the median"},
    span = {default = "10m", doc = "the median is that of the steps in this time"},
}
local slow = probing.table("slow_steps", {step = "i64", ms = "f64"}, {keep = "1d"})
local steps = probing.window("torch.step.duration_ms", args.span)
probing.on("torch.step", "duration_ms is not null", function(e)
    local median = steps:median()
    if median and e.duration_ms > args.factor * median then
        local row = {step = e.step, ms = e.duration_ms}
        slow:add(row)
        probing.publish(row)
    end
end, {wait = true})
