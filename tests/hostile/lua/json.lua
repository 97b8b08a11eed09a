-- SPDX-License-Identifier: Apache-2.0
-- JSON as deep, as long and as wrong as it can be made.
local deep = ("["):rep(70)
while true do
    pcall(probing.json.decode, deep)
    pcall(probing.json.decode, ("[1,"):rep(16000) .. "1" .. ("]"):rep(16000))
    local ok, big = pcall(probing.json.encode, {("x"):rep(500000)})
    if ok then pcall(probing.json.decode, big) end
    probing.state = setmetatable({}, {__index = function() while true do end end})
end
