-- SPDX-License-Identifier: Apache-2.0
-- Timers that replace and cancel each other from inside their functions.
local function again() local t = probing.after("10ms", again, "x") t:cancel() again() end
probing.every("10ms", again, "x")
while true do pcall(probing.every, "1h", print, "n" .. math.random(1000)) end
