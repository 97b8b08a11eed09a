# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this folder import product.py."""
