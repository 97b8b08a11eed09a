/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/version.h - the version of the core and of the command.
 *
 * It is said once, in the file VERSION at the root of the tree; the build makes version_number.h
 * of it.
 */
#ifndef CORE_BASE_VERSION_H
#define CORE_BASE_VERSION_H

#ifndef PROBING_VERSION /* tests build another one, to meet it */
#include "core/base/version_number.h"
#endif

/* "0.1.0 (build 3f2a91c04d5e)": a digest of the sources that both are made of, so that a command
 * and a core of different ones can say so (build.c). */
extern const char *const probing_build;

/* The text before it in the files of the command and of the core: the mark of what(1). */
#define BUILD_MARK "@(#)probing "
#define BUILD_MAX 64 /* bytes, with the NUL */

#endif
