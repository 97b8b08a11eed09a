-- SPDX-License-Identifier: Apache-2.0
-- Steps that took more than twice the median: kept in script.slow_steps, and told to who follows.
local slow = probing.table("slow_steps", {step = "i64", ms = "f64"}, {keep = "1d"})
local last = -1
probing.every("1s", function()
    local median = probing.query([[select median(step_duration_sec) * 1000 as ms
        from python.torch_step_timing]]):all()[1].ms
    for r in probing.query([[select step, step_duration_sec * 1000 as ms
            from python.torch_step_timing where step > ]] .. last .. " order by step") do
        if median and r.ms and r.ms > 2 * median then slow:add(r); probing.publish(r) end
        last = r.step
    end
end)
