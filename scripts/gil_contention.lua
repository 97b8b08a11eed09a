-- SPDX-License-Identifier: Apache-2.0
-- Threads of Python that wait for the GIL: how many at a time, on average over ten looks, and which
-- function held it most often.  Kept in script.gil_contention, and told to who follows.
local args = probing.args{
    period = {type = "duration", default = "1s", min = "50ms", doc = "how often it looks"},
    waiting = {default = 0.8, min = 0.1, doc = "reports from this many waiting threads"},
}
assert(probing.plugin("python"), "load plugin python first: plugin load python")
local LOOKS = 10
local found = probing.table("gil_contention", {waiting = "f64", holder = "str"},
    {keep = "1d", doc = "times in which threads waited for the GIL"})
local looks, waiting, holders = 0, 0, {}

-- The frame that waits for the GIL, in a Python with symbols and in one without.  Locks of Python
-- wait in other functions (sem_clockwait).
local FRAMES = "select thread_id, func, frame_type, gil, func in ('take_gil', "
    .. "'pthread_cond_timedwait') as takes from python.backtrace order by thread_id, level"

probing.every(args.period, function()
    local waits, held = {}, nil
    for r in probing.query(FRAMES) do
        if r.takes and r.gil == 0 then waits[r.thread_id] = true end
        if r.frame_type == "python" and r.gil == 1 then held = held or r.func end
    end
    for _ in pairs(held and waits or {}) do waiting = waiting + 1 end
    if held then holders[held] = (holders[held] or 0) + 1 end
    looks = looks + 1
    if looks < LOOKS then return end
    if waiting / looks >= args.waiting then
        local most
        for name, n in pairs(holders) do
            if not most or n > holders[most] then most = name end
        end
        local row = {waiting = waiting / looks, holder = most}
        found:add(row)
        probing.publish(row)
    end
    looks, waiting, holders = 0, 0, {}
end)
