-- SPDX-License-Identifier: Apache-2.0
-- As many timers as there may be, and each loops.
while pcall(probing.every, "10ms", function() while true do end end) do end
