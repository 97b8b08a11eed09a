-- SPDX-License-Identifier: Apache-2.0
-- Steps that took more than twice the median: kept in script.slow_steps, and told to who follows.
local slow = probing.table("slow_steps", {step = "i64", ms = "f64"}, {keep = "1d"})
local last = -1
probing.every("1s", function()
    local median = probing.query([[select median(duration) * 1000 as ms from python.torch_trace
        where stage = 'post step']]):all()[1].ms
    local since = " and local_step > " .. last .. " order by local_step"
    for r in probing.query([[select local_step as step, duration * 1000 as ms
            from python.torch_trace where stage = 'post step']] .. since) do
        if median and r.ms > 2 * median then slow:add(r); probing.publish(r) end
        last = r.step
    end
end)
