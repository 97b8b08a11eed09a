-- SPDX-License-Identifier: Apache-2.0
-- A C loop over nothing.
string.rep("", math.maxinteger)
