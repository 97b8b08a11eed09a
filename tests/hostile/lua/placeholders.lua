-- SPDX-License-Identifier: Apache-2.0
-- Statements full of placeholders and of quotes that never close.
local values = {}
for i = 1, 200 do values[i] = ("'"):rep(i) end
while true do
    pcall(probing.query, "select " .. ("?,"):rep(199) .. "?", table.unpack(values))
    pcall(probing.query, "select '?" .. ("$"):rep(9999), 1)
    pcall(probing.query, ("/*"):rep(9999) .. "?", 1)
end
