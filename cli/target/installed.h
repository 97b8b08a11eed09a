/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/installed.h - the files of this installation: plugins, the library, scripts, licences.
 *
 * One thread.  0, or -errno with err_set() done.
 */
#ifndef CLI_TARGET_INSTALLED_H
#define CLI_TARGET_INSTALLED_H

#include <stddef.h>

#include "core/base/version.h"

struct lines; /* cli/terminal/check_lines.h */

/* Find the command's own <name>.so: in PROBING_PLUGIN_PATH or among what is installed. */
int plugin_find(const char *name, char *ret, size_t size);

/* Find a file that ships: "libprobing.so", "scripts/slow_step.lua". */
int installed_file(const char *name, char *ret, size_t size);
/* Give the build that a file of ours claims ("0.1.0 (build 3f2a91c04d5e)"); "": it names none. */
void installed_build_of(const char *file, char ret[BUILD_MAX]);
/* `--version -v`: what was found where, and what else there is.  `--licenses`. */
int installed_print(struct lines *l);
int installed_licenses(void);

#endif
