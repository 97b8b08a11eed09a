-- SPDX-License-Identifier: Apache-2.0
-- Training that waits for data: steps that spend more than a share of their time in next() of a
-- DataLoader, or a loop that waits for one batch for long (then with the worker that has it). Kept
-- in script.dataloader_stall, and told to who follows.  Needs plugin torch.
local args = probing.args{
    period = {type = "duration", default = "10s", min = "100ms", doc = "how often it looks"},
    share = {default = 0.3, min = 0, max = 1, doc = "reports from this part of the steps' time"},
    wait = {type = "duration", default = "30s", doc = "reports one wait that is longer"},
}
assert(probing.plugin("torch"), "load plugin torch first: plugin load torch")
local stalls = probing.table("dataloader_stall",
    {share = "f64", wait_s = "f64", worker = "i64", pid = "i64", state = "str"},
    {keep = "1d", doc = "times in which the training loop waited for data"})
local steps = "select sum(data_ms) / sum(duration_ms) as share from torch.step where ts > ? and "
    .. "duration_ms is not null"
local loop = "select phase_sec as wait_s from torch.loop where phase = 'waiting for data'"
local worker = "select worker, pid, state from torch.loaders where next_batch_pending = 1"

local function tell(row)
    stalls:add(row)
    probing.publish(row)
end

probing.every(args.period, function()
    local since = probing.time(probing.now() - math.floor(args.period * 1e9))
    local row = probing.query(steps, since):next()
    if row and row.share and row.share > args.share then tell{share = row.share} end
    local wait = probing.query(loop):next()
    if wait and wait.wait_s > args.wait then
        row = probing.query(worker):next() or {}
        row.wait_s = wait.wait_s
        tell(row)
    end
end)
