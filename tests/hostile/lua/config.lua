-- SPDX-License-Identifier: Apache-2.0
-- Settings of plugins that never come.
local i = 0
while true do
  i = i + 1
  pcall(probing.config, "nothing" .. i .. ".x", "1")
  pcall(probing.config, "table.t" .. i .. ".keep", "1h")
end
