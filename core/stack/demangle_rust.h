/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/demangle_rust.h - names of Rust functions as they are written.
 *
 * Private to this folder.  A pure function of bytes that may be anything: any thread, nothing kept,
 * no allocation.
 */
#ifndef CORE_STACK_DEMANGLE_RUST_H
#define CORE_STACK_DEMANGLE_RUST_H

#include <stdbool.h>
#include <stddef.h>

/* "_ZN3foo3bar17h0123456789abcdefE" or "_RNvC3foo3bar" as "foo::bar", cut at `size` - 1 bytes.
 * false: the name is none of these, and what `ret` holds is undefined. */
bool rust_demangle(const char *name, char *ret, size_t size);

#endif
