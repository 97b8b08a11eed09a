-- SPDX-License-Identifier: Apache-2.0
-- As many labels and goto as there may be.
local s = "do " .. ("goto a "):rep(32000) .. "::a:: end "
while true do load(s .. s .. s) end
