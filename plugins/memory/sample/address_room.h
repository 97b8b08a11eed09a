/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/address_room.h - how large the sampler's tables may be where the process
 * may not map what it likes (ulimit -v, -d): a limit that we meet is met by the program, too.
 *
 * [control].  No state.
 */
#ifndef MEMORY_SAMPLE_ADDRESS_ROOM_H
#define MEMORY_SAMPLE_ADDRESS_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#define ADDRESS_ROOM_PART 4 /* of what is left, at most one part of so many is ours */

struct table_sizes {
    uint32_t slots;   /* of the pool of samples */
    uint32_t entries; /* of the table of live samples */
};

/* Bytes that the process may still map; UINT64_MAX: there is no limit. */
uint64_t address_room(void);
/* Address space that tables of these sizes take; scratch_bytes: of each slot. */
uint64_t table_bytes(const struct table_sizes *t, uint32_t scratch_bytes);
/* The tables that fit into our part of `room`; false: not even the smallest (*ret) do.  has_table:
 * the table of live samples is mapped already. */
bool fit_tables(uint64_t room, uint32_t scratch_bytes, bool has_table, struct table_sizes *ret);

#endif
