-- SPDX-License-Identifier: Apache-2.0
-- Queries that take long.
while true do
  pcall(function() probing.query("select count(*) from generate_series(1, 100000000) a, "
    .. "generate_series(1, 1000) b") end)
end
