/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/declarations.h - what the plugin declares.
 */
#ifndef SYSTEM_DECLARATIONS_H
#define SYSTEM_DECLARATIONS_H

#include <probing/plugin.h>

extern const struct probing_declarations system_declares;

#endif
