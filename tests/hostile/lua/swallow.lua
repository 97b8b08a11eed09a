-- SPDX-License-Identifier: Apache-2.0
-- pcall() around everything, the stop as well.
while true do pcall(function() while true do end end) end
