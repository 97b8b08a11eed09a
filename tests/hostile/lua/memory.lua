-- SPDX-License-Identifier: Apache-2.0
-- All the memory there is, in small pieces.
while true do pcall(function() local t = {} while true do t = {t, #tostring(t)} end end) end
