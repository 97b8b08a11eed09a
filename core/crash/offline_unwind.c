/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/offline_unwind.c - unwinding after death: registers, stacks and the memory map of a
 * report, and the files that were mapped.
 * The reader's thread only.
 */
#include "core/crash/offline_unwind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/stack/stack.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"

#define MAPS_MAX_BYTES ((size_t)64 << 20)
#define PIECES_MAX 65536u

struct thread_place {
    uint32_t thread; /* from 1 */
    struct stack_registers registers;
};

struct dead {
    struct buf maps;
    struct stack_piece *pieces;
    uint32_t n_pieces, room_pieces;
    struct thread_place *places;
    uint32_t n_places, room_places;
};

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int add_memory(struct dead *d, const char *at)
{
    char *hex;
    uint64_t address = strtoull(at, &hex, 16);
    hex += *hex == ' ';
    size_t size = strlen(hex) / 2;
    if (size == 0 || d->n_pieces == PIECES_MAX)
        return 0;
    unsigned char *bytes = malloc(size);
    struct stack_piece *pieces =
        bytes ? array_grow(d->pieces, d->n_pieces, &d->room_pieces, sizeof(*pieces), PIECES_MAX)
              : NULL;
    if (!pieces) {
        free(bytes);
        return -ENOMEM;
    }
    d->pieces = pieces;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    d->pieces[d->n_pieces++] = (struct stack_piece){address, size, bytes};
    return 0;
}

static int add_place(struct dead *d, const char *at, uint32_t thread)
{
    struct stack_registers r = {.known = 0};
    uint32_t n = 0;
    char *end;
    if (d->n_places && d->places[d->n_places - 1].thread == thread)
        return 0; /* one thread is in one place: no file can keep us busy with millions */
    for (; *at && n <= STACK_REG_IP; n++, at = end) {
        r.value[n] = strtoull(at, &end, 16);
        if (end == at)
            break;
    }
    if (n == 2) { /* ip and sp */
        uint64_t ip = r.value[0], sp = r.value[1];
        r.value[STACK_REG_IP] = ip;
        r.value[STACK_REG_SP] = sp;
        r.known = UINT64_C(1) << STACK_REG_IP | UINT64_C(1) << STACK_REG_SP;
    } else if (n == STACK_REG_IP + 1) {
        r.known = (UINT64_C(1) << n) - 1;
    } else {
        return 0; /* of another machine */
    }
    struct thread_place *places =
        array_grow(d->places, d->n_places, &d->room_places, sizeof(*places), UINT32_MAX);
    if (!places)
        return -ENOMEM;
    d->places = places;
    d->places[d->n_places++] = (struct thread_place){thread, r};
    return 0;
}

int dead_line(struct dead **ret, const char *word, const char *at, uint32_t n_threads)
{
    if (!*ret) {
        *ret = calloc(1, sizeof(**ret));
        if (!*ret)
            return -ENOMEM;
        buf_init(&(*ret)->maps, MAPS_MAX_BYTES);
    }
    struct dead *d = *ret;
    if (strcmp(word, "memory") == 0)
        return add_memory(d, at);
    if (strcmp(word, "at") == 0)
        return add_place(d, at, n_threads);
    (void)buf_adds(&d->maps, at);
    return buf_addc(&d->maps, '\n') == 0 ? 0 : -ENOMEM;
}

static void unwind_thread(struct stack_process *p, const struct thread_place *place,
                          struct arena *arena, struct crash_thread *t)
{
    struct stack_frame frames[STACK_FRAMES_MAX]; /* 8 KiB */
    struct stack_symbol symbol;
    enum stack_end end = STACK_END_LOST;
    int n = stack_unwind(p, &place->registers, frames, STACK_FRAMES_MAX, &end);
    if (n <= 0 || !(t->frames = arena_zalloc(arena, (size_t)n, sizeof(*t->frames))))
        return;
    for (int i = 0; i < n; i++) {
        struct crash_frame *f = &t->frames[i];
        uint64_t address = frames[i].ip - (i > 0);
        const struct stack_module *m = stack_module_at(p, address);
        int rc = stack_symbol(p, address, &symbol);
        *f = (struct crash_frame){.ip = frames[i].ip, .func = "", .module = "", .file = ""};
        f->offset = m ? address - m->bias : 0;
        if (m)
            f->module = arena_text(arena, m->path, strlen(m->path));
        if (rc == 0)
            f->func = arena_text(arena, symbol.name, strlen(symbol.name));
        f->function_offset = rc == 0 ? symbol.offset : 0;
    }
    t->n_frames = (uint32_t)n;
    t->note = end == STACK_END_OUTERMOST
                  ? "unwound after the process had ended"
                  : "unwound after the process had ended; outer frames are missing";
}

static int by_address(const void *a, const void *b)
{
    const struct stack_piece *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

void dead_unwind(struct dead *d, struct arena *arena, struct crash_thread *threads, uint32_t n)
{
    struct stack_process *p;
    size_t size = 0;
    if (d->n_pieces)
        qsort(d->pieces, d->n_pieces, sizeof(*d->pieces), by_address);
    (void)buf_text(&d->maps);
    char *maps = buf_steal(&d->maps, &size);
    if (!maps || stack_process_open_dead(maps, size, d->pieces, d->n_pieces, &p) < 0) {
        free(maps);
        return;
    }
    for (uint32_t i = 0; i < d->n_places; i++) {
        const struct thread_place *place = &d->places[i];
        if (place->thread >= 1 && place->thread <= n && threads[place->thread - 1].n_frames == 0)
            unwind_thread(p, place, arena, &threads[place->thread - 1]);
    }
    stack_process_free(p);
}

void dead_free(struct dead *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; i < d->n_pieces; i++)
        free((void *)(uintptr_t)d->pieces[i].bytes);
    free(d->pieces);
    free(d->places);
    buf_done(&d->maps);
    free(d);
}
