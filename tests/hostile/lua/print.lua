-- SPDX-License-Identifier: Apache-2.0
-- More lines than anybody can read.
while true do print(("x"):rep(5000)) probing.log("y") end
