-- SPDX-License-Identifier: Apache-2.0
-- Large answers, all kept.
local all = {}
while true do
  local ok, r = pcall(probing.query, "select repeat('x', 1000) as x from generate_series(1, 20000)")
  all[#all + 1] = ok and r or nil
  if not ok then all = {} end
end
