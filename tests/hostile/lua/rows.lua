-- SPDX-License-Identifier: Apache-2.0
-- Rows with texts that are all new.
local t = probing.table("texts", {s = "str"})
local i = 0
while true do i = i + 1 pcall(t.add, t, {s = i .. ("x"):rep(1000)}) end
