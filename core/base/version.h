/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/version.h - the version of the core and of the command, said once.
 */
#ifndef CORE_BASE_VERSION_H
#define CORE_BASE_VERSION_H

#ifndef PROBING_VERSION /* tests build another one, to meet it */
#define PROBING_VERSION "0.1.0"
#endif

#endif
