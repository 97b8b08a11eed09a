/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/coordinates.c - rank, step and role of the process, for our rows.
 *
 * Threads: any; the cells are read and written one at a time.  Plugin torch writes its own there:
 * until it comes, and where it does not, they are what the launcher's environment says.
 */
#include "package_api/coordinates.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exec/bindings.h"
#include "lib/proc/identity.h"

static union probing_cell cells[PROBING_COORDINATES] = {[PROBING_LOCAL_STEP] = {PROBING_NULL_I64},
                                                        [PROBING_GLOBAL_STEP] = {PROBING_NULL_I64},
                                                        [PROBING_RANK] = {PROBING_NULL_I64},
                                                        [PROBING_WORLD_SIZE] = {PROBING_NULL_I64},
                                                        [PROBING_LOCAL_RANK] = {PROBING_NULL_I64}};

/* A whole number of the environment; anything else is as if it were not there. */
static int64_t number_of(const char *name)
{
    uint64_t value;
    return probing_parse_u64(identity_getenv(name), INT32_MAX, &value) == 0 ? (int64_t)value
                                                                            : PROBING_NULL_I64;
}

static bool is_null(int which)
{
    int64_t none = which == PROBING_ROLE ? (int64_t)PROBING_NULL_ID : PROBING_NULL_I64;
    return __atomic_load_n(&cells[which].i, __ATOMIC_RELAXED) == none;
}

static void read_now(bool anew)
{
    static const char *const names[] = {[PROBING_RANK] = "RANK",
                                        [PROBING_WORLD_SIZE] = "WORLD_SIZE",
                                        [PROBING_LOCAL_RANK] = "LOCAL_RANK"};
    for (int i = PROBING_RANK; i <= PROBING_LOCAL_RANK; i++) {
        int64_t number = number_of(names[i]);
        if (number != PROBING_NULL_I64 && (anew || is_null(i)))
            __atomic_store_n(&cells[i].i, number, __ATOMIC_RELAXED);
    }
    const char *role = identity_getenv("ROLE_NAME");
    uint64_t id;
    if (role && *role && (anew || is_null(PROBING_ROLE)) &&
        natives_host->intern(natives_host, role, strlen(role), &id) == 0)
        __atomic_store_n(&cells[PROBING_ROLE].u, id, __ATOMIC_RELAXED);
}

void coordinates_read(void)
{
    read_now(/* anew= */ false);
}

static void read_anew(void)
{
    read_now(/* anew= */ true);
}

const struct probing_python_coordinates_1 coordinates_part = {
    sizeof(coordinates_part), PROBING_COORDINATES, cells, read_anew};

void coordinates_put(union probing_cell *row)
{
    for (int i = 0; i < PROBING_COORDINATES; i++)
        row[i].u = __atomic_load_n(&cells[i].u, __ATOMIC_RELAXED);
}

/* It counts its own steps, and its core has interned nothing yet. */
void coordinates_forked(void)
{
    __atomic_store_n(&cells[PROBING_LOCAL_STEP].i, PROBING_NULL_I64, __ATOMIC_RELAXED);
    __atomic_store_n(&cells[PROBING_GLOBAL_STEP].i, PROBING_NULL_I64, __ATOMIC_RELAXED);
    __atomic_store_n(&cells[PROBING_ROLE].u, PROBING_NULL_ID, __ATOMIC_RELAXED);
}
