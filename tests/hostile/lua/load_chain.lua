-- SPDX-License-Identifier: Apache-2.0
-- An endless chain of elseif and or.
local s = "if x then " .. ("elseif x or y then "):rep(300000) .. "end"
while true do pcall(load, s) end
