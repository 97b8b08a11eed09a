/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/version.h - the version of the core and of the command, said once: the build and the
 * Python package read it here.
 */
#ifndef CORE_BASE_VERSION_H
#define CORE_BASE_VERSION_H

#ifndef PROBING_VERSION /* tests build another one, to meet it */
#define PROBING_VERSION "0.1.0"
#endif

/* "0.1.0 (build 3f2a91c04d5e)": a digest of the sources that both are made of, so that a command
 * and a core of different ones can say so (build.c). */
extern const char probing_build[];

#endif
