/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/address_room.c - sizes of tables that leave the program most of what it may
 * still map.
 *
 * [control].  No state.
 */
#include "address_room.h"

#include <sys/resource.h>

#include "lib/proc/task.h"
#include "live_table.h"
#include "sampling/sample_pool.h"

#define ENTRIES_LEAST 4095u

static uint64_t left_of(int which, uint64_t used)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || used == PROC_UNKNOWN)
        return UINT64_MAX;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t address_room(void)
{
    struct proc_status now;
    if (proc_status_of(0, 0, &now) < 0)
        return UINT64_MAX; /* then the kernel will say no */
    uint64_t space = left_of(RLIMIT_AS, now.size_bytes);
    uint64_t data = left_of(RLIMIT_DATA, now.data_bytes);
    return space < data ? space : data;
}

uint64_t table_bytes(const struct table_sizes *t, uint32_t scratch_bytes)
{
    return sample_pool_bytes(t->slots, scratch_bytes) + live_table_bytes(t->entries);
}

bool fit_tables(uint64_t room, uint32_t scratch_bytes, bool has_table, struct table_sizes *ret)
{
    *ret = (struct table_sizes){.slots = SAMPLE_SLOTS_MAX, .entries = LIVE_MAX};
    for (;;) {
        uint64_t pool = sample_pool_bytes(ret->slots, scratch_bytes);
        uint64_t live = has_table ? 0 : live_table_bytes(ret->entries);
        if (room == UINT64_MAX || pool + live <= room / ADDRESS_ROOM_PART)
            return true;
        if (ret->slots > SAMPLE_SLOTS && (pool > live || ret->entries <= ENTRIES_LEAST))
            ret->slots /= 2;
        else if (ret->entries > ENTRIES_LEAST)
            ret->entries /= 4;
        else
            return false;
    }
}
