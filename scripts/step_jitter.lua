-- SPDX-License-Identifier: Apache-2.0
-- Training steps of uneven length: the 95th percentile of the last steps is some times their
-- median.  Kept in script.step_jitter, and told to who follows; slow_step has single steps.  Needs
-- plugin torch.
local args = probing.args{
    span = {type = "duration", default = "1m", min = "100ms", doc = "looks at this time back"},
    factor = {default = 2.0, min = 1, doc = "reports from this many times the median"},
    steps = {default = 20, min = 2, doc = "says nothing of fewer steps"},
}
assert(probing.plugin("torch"), "load plugin torch first: plugin load torch")
local jitter = probing.table("step_jitter", {steps = "i64", median_ms = "f64", p95_ms = "f64"},
    {keep = "1d", doc = "times in which training steps were uneven"})
local window = probing.window("torch.step.duration_ms", args.span)

probing.every(args.span, function()
    local row = {steps = window:count(), median_ms = window:median(), p95_ms = window:p(95)}
    if (row.steps or 0) < args.steps or row.p95_ms < args.factor * row.median_ms then return end
    jitter:add(row)
    probing.publish(row)
end)
