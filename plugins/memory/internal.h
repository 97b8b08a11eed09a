/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/internal.h - what the plugin's own files share and no room owns.
 */
#ifndef MEMORY_INTERNAL_H
#define MEMORY_INTERNAL_H

#include <probing/plugin.h>

extern const struct probing_declarations memory_declares;

#endif
