-- SPDX-License-Identifier: Apache-2.0
-- All the memory there is, in one piece.
while true do pcall(function() local s = "x" while true do s = s .. s end end) end
