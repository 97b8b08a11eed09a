/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/internal.h - what the plugin's own files share and no room owns.
 */
#ifndef CUDA_INTERNAL_H
#define CUDA_INTERNAL_H

#include <probing/plugin.h>

extern const struct probing_declarations cuda_declares;

#endif
