-- SPDX-License-Identifier: Apache-2.0
-- A call that is no loop.
local function f() return f() end
f()
