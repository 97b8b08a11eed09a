-- SPDX-License-Identifier: Apache-2.0
-- More than there is memory, again and again.
while true do pcall(string.rep, "x", 1e9) pcall(string.rep, "xy", 3e7) end
