/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/comm_names.c - names of threads, asked for again after some seconds.
 */
#include "comm_names.h"

#include <string.h>

#include "lib/hash.h"
#include "probing_sdk.h"
#include "sampling.h"

#define NAMES_NS (10 * PROBING_NS_PER_S) /* a name is read again after this */

uint64_t comm_names_of(struct comm_names *t, const struct probing_host *host,
                       const struct probing_python_frames_1 *python, const struct sample_slot *x,
                       uint64_t now)
{
    __typeof__(&t->names[0]) n = &t->names[hash_spread((uint32_t)x->tid) >> 56];
    char name[128] = "";
    if (n->tid == x->tid && n->comm == x->user[OF_COMM] && now - n->ns < NAMES_NS)
        return n->id;
    if (!python || python->thread_name(x->tid, name, sizeof(name)) < 0) {
        memcpy(name, &x->user[OF_COMM], 16);
        name[16] = '\0';
    }
    n->tid = x->tid;
    n->comm = x->user[OF_COMM];
    n->id = probing_intern_text(host, name[0] ? name : NULL);
    n->ns = now;
    return n->id;
}
_Static_assert(COMM_NAMES == 1u << (64 - 56), "comm_names_of() spreads threads over all");
