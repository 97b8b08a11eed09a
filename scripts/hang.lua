-- SPDX-License-Identifier: Apache-2.0
-- A process that stands still: no thread of Python has moved to another line, or kept waking up,
-- for some time.  Where each one stands is kept in script.hang, and told to who follows.  A program
-- that waits for work, or computes for long in one call of C, looks the same.
local args = probing.args{
    after = {type = "duration", default = "1m", min = "500ms", doc = "reports after this long"},
    thread = {default = "", doc = "only the thread of this name, as MainThread; all without one"},
}
assert(probing.plugin("python"), "load plugin python first: plugin load python")
local LOOKS, OWN_WAKES = 5, 5 -- in that time; how often a look itself may wake a thread
local hangs = probing.table("hang", {thread = "str", func = "str", file = "str", line = "i64"},
    {keep = "1d", doc = "where threads of Python stood while none of them moved"})
local FRAMES = "select b.thread_id as tid, thread_name as thread, func, file, lineno as line, "
    .. "vol_ctxt as sleeps from python.backtrace b join cpu.tasks t on t.thread_id = b.thread_id "
    .. "where frame_type = 'python' and ? in ('', thread_name) order by b.thread_id, level"
local before, still = {}, 0

probing.every(args.after / LOOKS, function()
    local now, moved = {}, false
    for r in probing.query(FRAMES, args.thread) do
        local t = now[r.tid] or {stack = "", sleeps = r.sleeps,
            row = {thread = r.thread, func = r.func, file = r.file, line = r.line}}
        t.stack = t.stack .. r.func .. ":" .. tostring(r.line) .. "\n"
        now[r.tid] = t
    end
    for tid, t in pairs(now) do
        local was = before[tid]
        moved = moved or not was or was.stack ~= t.stack or t.sleeps > was.sleeps + OWN_WAKES
    end
    before, still = now, moved and 0 or still + 1
    for _, t in pairs(still == LOOKS and now or {}) do
        hangs:add(t.row)
        probing.publish(t.row)
    end
end)
