/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/names.c - texts that were seen before have their ids at hand: at 100,000
 * kernels a second nothing is looked up twice.
 *
 * Threads: one at a time.
 */
#include "trace/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lib/demangle/demangle.h"
#include "lib/hash.h"
#include "probing_sdk.h"

#define KERNELS 16384u  /* names at hand; a power of two, half of it is used */
#define SIZES 4096u     /* different sizes of grids and blocks that are told; likewise */
#define NAME_MOST 1024u /* bytes of a kernel's name: a template's can be endless */
#define RAW_MOST 32768u /* as the compiler left it; what is longer is told apart no more */

struct kernel_name {
    const char *at;
    uint64_t id;
    bool collective;
};

struct size_name {
    int32_t size[3];
    uint64_t id; /* PROBING_NULL_ID: empty */
};

struct names {
    const struct probing_host *host;
    struct kernel_name kernels[KERNELS];
    struct size_name sizes[SIZES];
    uint32_t n_kernels, n_sizes;
    struct call_name calls[2][CALLS]; /* runtime, driver; id 0: not asked yet */
    struct plainer *plain;
    char raw[RAW_MOST];
};

int names_new(const struct probing_host *host, struct names **ret)
{
    *ret = calloc(1, sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    (*ret)->host = host;
    return plainer_new(&(*ret)->plain);
}

void names_free(struct names *n)
{
    if (n)
        plainer_free(n->plain);
    free(n);
}

void names_forget(struct names *n)
{
    memset(n->kernels, 0, sizeof(n->kernels));
    n->n_kernels = 0;
}

/* By the kernel, which says when there is nothing; up to the end of a page at a time, as the
 * next one may not be there.  false: not all of it can be read. */
static bool read_text(const char *at, char *ret, size_t size)
{
    size_t have = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    while (have < size) {
        size_t rest = page - ((uintptr_t)at + have) % page;
        size_t want = rest < size - have ? rest : size - have;
        struct iovec to = {ret + have, want}, from = {(void *)((uintptr_t)at + have), want};
        ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
        if (n == -1 && (errno == EPERM || errno == ENOSYS)) /* a sandbox: CUPTI is believed */
            (void)memccpy(ret + have, at + have, '\0', want);
        else if (n != (ssize_t)want)
            return false;
        if (memchr(ret + have, '\0', want))
            return true;
        have += want;
    }
    ret[size - 1] = '\0';
    return true;
}

/* Names in a table are printable, whatever was there. */
static void clean_name(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* ncclDevKernel_AllReduce..., which a compiler of C++ calls _Z40ncclDevKernel_AllReduce... */
static bool is_collective(const char *name)
{
    if (strncmp(name, "_Z", 2) == 0)
        name += 2 + strspn(name + 2, "0123456789");
    return strncmp(name, "nccl", 4) == 0;
}

/* As a person writes it where that is understood.  A long one is cut, with a number that others
 * which begin like it do not have: that of all of it, the same in every process. */
static void write_plain(struct names *n, char ret[NAME_MOST])
{
    char cut[32];
    const char *plain = plainer_name(n->plain, n->raw);
    plain = plain ? plain : n->raw;
    size_t length = strlen(plain);
    if (length < NAME_MOST) {
        memcpy(ret, plain, length + 1);
        return;
    }
    int more =
        snprintf(cut, sizeof(cut), "...#%016" PRIx64, hash_bytes(HASH_FNV, n->raw, strlen(n->raw)));
    length = NAME_MOST - 1 - (size_t)more;
    memcpy(ret, plain, length);
    memcpy(ret + length, cut, (size_t)more + 1);
}

uint64_t names_kernel(struct names *n, const char *at, bool *ret_collective)
{
    char text[NAME_MOST];
    uint32_t i = (uint32_t)hash_spread((uintptr_t)at) % KERNELS;
    *ret_collective = false;
    if (!at)
        return PROBING_NULL_ID;
    while (n->kernels[i].at && n->kernels[i].at != at)
        i = (i + 1) % KERNELS;
    if (!n->kernels[i].at) {
        if (!read_text(at, n->raw, sizeof(n->raw)))
            return PROBING_NULL_ID;
        clean_name(n->raw);
        write_plain(n, text);
        if (n->n_kernels >= KERNELS / 2) {
            names_forget(n);
            i = (uint32_t)hash_spread((uintptr_t)at) % KERNELS;
        }
        n->n_kernels++;
        n->kernels[i] = (struct kernel_name){.at = at,
                                             .id = probing_intern_text(n->host, text),
                                             .collective = is_collective(n->raw)};
    }
    *ret_collective = n->kernels[i].collective;
    return n->kernels[i].id;
}

const struct call_name *names_call(struct names *n, struct session *s, bool driver, uint32_t id)
{
    static const struct call_name unknown = {.id = PROBING_NULL_ID};
    char text[128];
    if (id >= CALLS)
        return &unknown;
    struct call_name *c = &n->calls[driver][id];
    if (c->id == PROBING_NULL_ID) {
        bool told = session_call_name(s, driver, id, text, sizeof(text));
        if (!told)
            (void)snprintf(text, sizeof(text), "%s call %u", driver ? "driver" : "runtime", id);
        clean_name(text);
        *c = (struct call_name){.id = probing_intern_text(n->host, text),
                                .class = told ? call_class_of(text) : CALL_WORKS};
    }
    return c;
}

uint64_t names_size(struct names *n, const int32_t size[3])
{
    char text[48];
    uint64_t h = hash_bytes(0, size, 3 * sizeof(size[0]));
    uint32_t i = (uint32_t)h % SIZES;
    while (n->sizes[i].id != PROBING_NULL_ID &&
           memcmp(n->sizes[i].size, size, sizeof(n->sizes[i].size)) != 0)
        i = (i + 1) % SIZES;
    if (n->sizes[i].id == PROBING_NULL_ID) {
        if (n->n_sizes >= SIZES / 2)
            return PROBING_NULL_ID;
        n->n_sizes++;
        (void)snprintf(text, sizeof(text), "%dx%dx%d", size[0], size[1], size[2]);
        memcpy(n->sizes[i].size, size, sizeof(n->sizes[i].size));
        n->sizes[i].id = probing_intern_text(n->host, text);
    }
    return n->sizes[i].id;
}

uint64_t names_word(struct names *n, enum words which, uint32_t number)
{
    static const char *const copies[] = {"unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                         "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
    static const char *const memories[] = {"unknown",       "pageable",      "pinned",
                                           "device",        "array",         "managed",
                                           "device static", "managed static"};
    static const char *const syncs[] = {"unknown", "event", "stream wait event", "stream",
                                        "context"};
    static const char *const overheads[] = {
        "unknown",        "buffer flush",          "instrumentation",     "resource",
        "module loading", "lazy function loading", "command buffer full", "activity buffer request",
        "UVM init"};
    static const char *const operations[] = {"unknown", "alloc", "free"};
    static const struct {
        const char *const *words;
        size_t n;
    } all[N_WORDS] = {[WORDS_COPY] = {copies, PROBING_LENGTH(copies)},
                      [WORDS_MEMORY] = {memories, PROBING_LENGTH(memories)},
                      [WORDS_SYNC] = {syncs, PROBING_LENGTH(syncs)},
                      [WORDS_OVERHEAD] = {overheads, PROBING_LENGTH(overheads)},
                      [WORDS_OPERATION] = {operations, PROBING_LENGTH(operations)}};
    char text[32];
    if (which == WORDS_OVERHEAD && number == 1)
        return probing_intern_text(n->host, "driver compiler");
    uint32_t at = which == WORDS_OVERHEAD ? number >> 16 : number;
    if (at < all[which].n)
        return probing_intern_text(n->host, all[which].words[at]);
    (void)snprintf(text, sizeof(text), "kind %u", number);
    return probing_intern_text(n->host, text);
}
