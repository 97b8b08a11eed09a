/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/declarations.h - what the plugin declares.
 */
#ifndef NCCL_DECLARATIONS_H
#define NCCL_DECLARATIONS_H

#include <probing/plugin.h>

extern const struct probing_declarations nccl_declares;

#endif
