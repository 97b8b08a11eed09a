# SPDX-License-Identifier: Apache-2.0
"""The fixture that every end-to-end test may ask for; what it is stands in tests/world.py."""
from world import world  # noqa: F401
