-- SPDX-License-Identifier: Apache-2.0
-- Finalizers that make new ones with finalizers, so that no collection is the last.
local function make() setmetatable({}, {__gc = make}) end
while true do make() collectgarbage() end
