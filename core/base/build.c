/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/build.c - from which sources this was built; PROBING_BUILD is made by
 * scripts/tools/builders.py.
 *
 * Linked into the command and into the core, and into no library between: it changes with each
 * source, and the unit tests need not.
 */
#include "core/base/version.h"

/* Found in a file that nobody has loaded: by what(1), and by our search for what is installed. */
static const char what[] = BUILD_MARK PROBING_VERSION " (build " PROBING_BUILD ")";

const char *const probing_build = what + sizeof(BUILD_MARK) - 1;
