/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/internal.h - what the plugin's own files share and no room owns.
 */
#ifndef CUDA_INTERNAL_H
#define CUDA_INTERNAL_H

#include <probing/plugin.h>

#include "cupti/cupti_session.h"

extern const struct probing_declarations cuda_declares;

/* As probing/ext/draft/empty.h says.                                                   [any] */
int cuda_why_empty(const struct session_about *s, const char *table, char *text, uint32_t size);

#endif
