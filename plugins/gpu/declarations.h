/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/declarations.h - what the plugin declares.
 */
#ifndef GPU_DECLARATIONS_H
#define GPU_DECLARATIONS_H

#include <probing/plugin.h>

extern const struct probing_declarations gpu_declares;

#endif
