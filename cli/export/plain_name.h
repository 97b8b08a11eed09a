/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/plain_name.h - names of C++ and Rust functions as a person writes them.
 *
 * One thread.
 */
#ifndef CLI_EXPORT_PLAIN_NAME_H
#define CLI_EXPORT_PLAIN_NAME_H

/* A name of C++ as a person writes it, which stays until some others were asked for; else `name`.
 * Most are plain already, but not what crashes leave, and kernels' in data of older builds. */
const char *cli_plain_name(const char *name);

#endif
