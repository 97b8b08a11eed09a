/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/slots/page.h - may this page be written?
 *
 * Asked where the dynamic linker makes pages read-only: what it has not finished with is still
 * writable, and would be taken away from under a write.
 */
#ifndef SDK_LIB_SLOTS_PAGE_H
#define SDK_LIB_SLOTS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ranges that were writable when pages_take() was called; only for kernels that cannot be asked. */
struct pages {
    bool asks; /* the kernel can be asked for a page (5.14) */
    struct page_range {
        uintptr_t start, end;
    } * writable;
    size_t n, room; /* ranges */
};

/* 0, or -errno: nothing is known.  pages_free() in any case. */
int pages_take(struct pages *ret);
void pages_free(struct pages *p);
/* [any] */
bool page_is_writable(const struct pages *p, uintptr_t address);

#endif
