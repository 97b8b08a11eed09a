-- SPDX-License-Identifier: Apache-2.0
-- Its last words have no end, and come again from within.
probing.at_stop(function() pcall(probing.stop) while true do pcall(probing.stop) end end)
probing.every("10ms", function() while true do end end)
