-- SPDX-License-Identifier: Apache-2.0
-- Large texts as keys.
local t = {}
while true do for i = 1, 100 do t[("x"):rep(100000) .. i] = i end t = {} end
