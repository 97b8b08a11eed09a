-- SPDX-License-Identifier: Apache-2.0
-- NaN and infinities in training: the first module of a step whose output or gradients have one,
-- and variables (torch.variables: loss, grad_norm) that are one.  Kept in script.nan_watch, and
-- told to who follows.  Sets torch.detect_nan, and puts it back at its end.  Needs plugin torch.
local args = probing.args{
    modules = {default = true, doc = "looks at modules, too (torch.detect_nan, tensors on CPUs)"},
    again = {type = "duration", default = "1m", doc = "tells of one name once in this time"},
}
assert(probing.plugin("torch"), "load plugin torch first: plugin load torch")
local found = probing.table("nan_watch", {step = "i64", place = "str", value = "str"},
    {keep = "1d", doc = "NaN and infinities in modules and variables"})
local told = {}

if args.modules then
    local before = probing.config("torch.detect_nan")
    probing.config("torch.detect_nan", "on")
    probing.at_stop(function() probing.config("torch.detect_nan", before) end)
end
probing.on("python.variables", "name = 'nonfinite' or lower(value) in ('nan', 'inf', '-inf')",
    function(e)
        local place = e.name == "nonfinite" and e.func or e.name
        if e.ts - (told[place] or 0) < args.again * 1e9 then return end
        told[place] = e.ts
        local row = {step = e.local_step, place = place, value = e.value}
        found:add(row)
        probing.publish(row)
    end)
