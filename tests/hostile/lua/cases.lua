-- SPDX-License-Identifier: Apache-2.0
-- Large texts through what looks at each byte.
local s = ("xY"):rep(8000000)
while true do pcall(string.lower, s) pcall(string.upper, s)
  pcall(string.reverse, s) pcall(tonumber, s, 36) end
