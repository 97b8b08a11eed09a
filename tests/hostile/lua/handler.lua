-- SPDX-License-Identifier: Apache-2.0
-- A message handler that never ends.
xpcall(error, function() while true do end end)
