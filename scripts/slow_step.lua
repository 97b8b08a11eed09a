-- SPDX-License-Identifier: Apache-2.0
-- Training steps that took much longer than the median: kept in script.slow_steps, and told to who
-- follows.  Needs plugin torch.
local args = probing.args{
    factor = {default = 2.0, min = 1, doc = "times the median"},
    span = {default = "10m", doc = "the median is that of the steps in this time"},
}
local slow = probing.table("slow_steps", {step = "i64", ms = "f64"}, {keep = "1d"})
local steps = probing.window("python.torch_step_timing.step_duration_sec", args.span)
probing.on("python.torch_step_timing", "step_duration_sec is not null", function(r)
    local median = steps:median()
    if median and r.step_duration_sec > args.factor * median then
        local row = {step = r.step, ms = r.step_duration_sec * 1000}
        slow:add(row)
        probing.publish(row)
    end
end, {wait = true})
