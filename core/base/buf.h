/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/buf.h - growing byte buffers, of the library below us.
 */
#ifndef CORE_BASE_BUF_H
#define CORE_BASE_BUF_H

#include "sdk/lib/buf.h"

#endif
