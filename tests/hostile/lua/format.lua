-- SPDX-License-Identifier: Apache-2.0
-- Chains of wide formats.
local f = ("%99d"):rep(200)
local t = {}
for i = 1, 200 do t[i] = i end
while true do
  string.format(f, table.unpack(t)) string.format(("%99.99f"):rep(50), table.unpack(t)) end
