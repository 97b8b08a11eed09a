-- SPDX-License-Identifier: Apache-2.0
-- Names of windows and parameters that are statements of their own.
while true do
    pcall(probing.window, "x.y.z", "1s")
    pcall(function() probing.window("probing.log.text", 1e300):slope() end)
    pcall(probing.args, setmetatable({}, {__pairs = function() while true do end end}))
    pcall(probing.stack, math.maxinteger)
end
