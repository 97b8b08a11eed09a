-- SPDX-License-Identifier: Apache-2.0
-- Recursion until the stack is full, again and again.
local function f() return 1 + f() end
while true do pcall(f) end
