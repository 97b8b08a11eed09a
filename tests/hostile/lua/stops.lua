-- SPDX-License-Identifier: Apache-2.0
-- Its own end, swallowed.
while true do pcall(probing.stop) end
