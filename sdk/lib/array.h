/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/array.h - arrays that grow by one item at a time.
 *
 * Any thread; no state.  For malloc()ed arrays: those of an arena grow by the arena's own means.
 */
#ifndef SDK_LIB_ARRAY_H
#define SDK_LIB_ARRAY_H

#include <stdint.h>
#include <stdlib.h>

#define ARRAY_ROOM 16u /* items: the first room, which is doubled from then on */

/* Room for one more in an array of n items, which has room for *room: the array, or the larger one
 * to which its items have moved.  NULL: no memory, or it has `max` items; all is as before.
 *
 *     struct thing *list = array_grow(a->list, a->n, &a->room, sizeof(*list), THINGS_MAX);
 *     if (list == NULL)
 *         return -ENOMEM;
 *     a->list = list;
 *     a->list[a->n++] = ...;
 */
static inline void *array_grow(void *list, uint32_t n, uint32_t *room, size_t item_bytes,
                               uint32_t max)
{
    if (n < *room)
        return list;
    uint32_t more = *room == 0 ? ARRAY_ROOM : *room > max / 2 ? max : 2 * *room;
    more = more < max ? more : max;
    void *larger = n < more ? realloc(list, more * item_bytes) : NULL;
    *room = larger != NULL ? more : *room;
    return larger;
}

#endif
