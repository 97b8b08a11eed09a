-- SPDX-License-Identifier: Apache-2.0
-- A coroutine in a coroutine, and in the last a loop.
local function f(n) if n == 0 then while true do end end coroutine.wrap(f)(n - 1) end
f(150)
