-- SPDX-License-Identifier: Apache-2.0
-- All the tables there are.
local i = 0
while true do i = i + 1
  pcall(probing.table, "made" .. i, {x = "i64"})
  pcall(probing.table, "one", {["c" .. i] = "i64"}) end
