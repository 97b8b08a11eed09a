-- SPDX-License-Identifier: Apache-2.0
-- Ranges of bytes, as many as the stack holds.
local s = ("x"):rep(900000)
while true do pcall(string.byte, s, 1, -1) pcall(string.char, table.unpack({}, 1, 10)) end
