/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/own_descriptors.h - which descriptors of the process are ours.
 *
 * Any thread, handlers too.
 */
#ifndef CORE_BASE_OWN_DESCRIPTORS_H
#define CORE_BASE_OWN_DESCRIPTORS_H

#include <stdbool.h>

/* Did we open it, and not close it?  core/compat/descriptors.c knows, which is in libprobing.so
 * only: elsewhere nothing is told apart, and none is ours. */
bool descriptor_is_ours(int fd);

#endif
