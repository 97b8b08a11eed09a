/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/process.c - the view of one process: its maps, its memory, a cache of pages.
 * Owner's thread only.  It knows nothing of ELF.
 */
#include "core/stack/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/stack/internal.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/demangle/demangle.h"

#define MAPS_MAX_BYTES (64u << 20) /* bytes: 65530 mappings (vm.max_map_count) of 1000 bytes */

/* A plugin is mapped from a sealed copy, whose name says of which file
 * (core/plugin_file/sealed_copy.c): its symbols are there, if it is still the same build. */
static char *copied_file(char *path)
{
    static const char before[] = "/memfd:probing-plugin:", behind[] = " (deleted)";
    size_t size = strlen(path), n = sizeof(before) - 1;
    if (strncmp(path, before, n) != 0 || path[n] != '/' || size < n + sizeof(behind) ||
        strcmp(path + size + 1 - sizeof(behind), behind) != 0)
        return path;
    path[size + 1 - sizeof(behind)] = '\0';
    return path + n;
}

/* ---- memory of our own ---- */

void *process_alloc(struct stack_process *p, size_t size)
{
    if (!p->pool)
        return calloc(1, size);
    size_t need = (size + 15) & ~(size_t)15;
    if (need < size || need > p->pool_size - p->pool_used)
        return NULL;
    void *piece = p->pool + p->pool_used;
    p->pool_used += need;
    memset(piece, 0, size);
    return piece;
}

void process_free(const struct stack_process *p, const void *piece)
{
    if (!p->pool)
        free((void *)(uintptr_t)piece);
}

/* ---- maps ---- */

/* /proc/PID/maps is empty when the first thread has ended; any other thread's shows them. */
static int maps_text(struct stack_process *p, struct buf *b)
{
    char path[64];
    (void)snprintf(path, sizeof(path), p->self ? "/proc/thread-self/maps" : "/proc/%d/maps",
                   p->pid);
    int rc = file_read(AT_FDCWD, path, b);
    if (rc < 0 && p->self) {
        buf_reset(b);
        rc = file_read(AT_FDCWD, "/proc/self/maps", b);
    }
    if (rc < 0)
        return rc == -ENOENT ? err_set(-ESRCH, "there is no process %d", p->pid) : rc;
    return 0;
}

/* The maps of our own process into the pool: its text, and *ret_size; NULL: no room, no file. */
static char *maps_into_pool(struct stack_process *p, size_t *ret_size)
{
    char *text = (char *)p->pool + p->pool_used;
    size_t size = 0, room = p->pool_size - p->pool_used;
    int fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return NULL;
    ssize_t n = 1;
    while (n > 0 && size < room) {
        n = read(fd, text + size, room - size);
        size += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    if (n != 0 || size == 0 || size == room)
        return NULL;
    text[size] = '\0';
    p->pool_used += (size + 16) & ~(size_t)15;
    *ret_size = size;
    return text;
}

/* The text of the maps, its owner the view.  0 or -errno. */
static int maps_take(struct stack_process *p, char **ret, size_t *ret_size)
{
    struct buf b;
    if (p->pool) {
        *ret = maps_into_pool(p, ret_size);
        return *ret ? 0 : err_set(-ENOMEM, "the memory map cannot be read or does not fit");
    }
    buf_init(&b, MAPS_MAX_BYTES);
    int rc = maps_text(p, &b);
    if (rc == 0) {
        (void)buf_text(&b);
        *ret = buf_steal(&b, ret_size);
        if (!*ret)
            rc = err_set(-ENOMEM, "no memory for the memory map of process %d", p->pid);
    }
    buf_done(&b);
    return rc;
}

int process_read_maps(struct stack_process *p)
{
    size_t size = 0;
    char *text = NULL;
    if (p->dead)
        return -ESRCH;
    int rc = maps_take(p, &text, &size);
    return rc < 0 ? rc : process_parse_maps(p, text, size);
}

int process_parse_maps(struct stack_process *p, char *text, size_t size)
{
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    struct proc_mapping *maps = process_alloc(p, lines * sizeof(*maps));
    if (!maps) {
        if (!p->dead)
            process_free(p, text);
        return err_set(-ENOMEM, "no memory for the memory map of process %d", p->pid);
    }
    uint32_t n = 0;
    struct proc_lines l;
    proc_lines_of(&l, text, size);
    for (; proc_maps_next(&l, &maps[n]) && !l.cut; n++)
        maps[n].path = copied_file(maps[n].path);
    process_free(p, p->maps);
    process_free(p, p->paths);
    p->maps = maps;
    p->paths = text;
    p->n_maps = n;
    p->maps_fresh = true;
    return modules_update(p);
}

const struct proc_mapping *process_mapping_at(const struct stack_process *p, uint64_t address)
{
    uint32_t low = 0, high = p->n_maps;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (address < p->maps[middle].start)
            high = middle;
        else if (address >= p->maps[middle].end)
            low = middle + 1;
        else
            return &p->maps[middle];
    }
    return NULL;
}

bool stack_is_code(const struct stack_process *p, uint64_t address)
{
    const struct proc_mapping *m = process_mapping_at(p, address);
    return m && m->executable;
}

static void forget_pages(struct stack_process *p)
{
    for (uint32_t i = 0; i < PAGE_SLOTS; i++) {
        if (p->pages[i])
            p->pages[i]->address = 1;
    }
}

int stack_process_open(pid_t pid, struct stack_process **ret)
{
    struct stack_process *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(-ENOMEM, "no memory to inspect process %d", pid);
    p->pid = pid;
    p->self = pid == getpid();
    p->memory = PROC_MEMORY_OF(p->self ? 0 : pid);
    p->generation = 1;
    int rc = process_read_maps(p);
    if (rc < 0) {
        stack_process_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

/* The view itself is the first piece of its pool.  Shared memory is no private memory (ulimit -d),
 * of which this would take much and use little; no child has it. */
int stack_process_open_pool(size_t pool_bytes, struct stack_process **ret)
{
    void *pool = mmap(NULL, pool_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED)
        return err_set(-ENOMEM, "no %zu bytes of memory to look at stacks", pool_bytes);
    (void)madvise(pool, pool_bytes, MADV_DONTFORK);
    struct stack_process *p = pool;
    *p = (struct stack_process){
        .pid = getpid(), .self = true, .memory = PROC_MEMORY_OF(0), .generation = 1, .pool = pool};
    p->pool_size = pool_bytes;
    p->pool_used = (sizeof(*p) + 15) & ~(size_t)15;
    int rc = process_read_maps(p);
    if (rc == 0)
        rc = unwind_begin(p);
    if (rc < 0) {
        stack_process_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

int stack_process_renew(struct stack_process *p)
{
    modules_free(p); /* unmaps symbol files */
    p->maps = NULL;
    p->paths = NULL;
    p->n_maps = 0;
    memset(p->pages, 0, sizeof(p->pages));
    p->generation++;
    p->overlay_size = 0;
    p->pool_used = (sizeof(*p) + 15) & ~(size_t)15;
    return process_read_maps(p);
}

void stack_process_free(struct stack_process *p)
{
    if (!p)
        return;
    unwind_done(p);
    modules_free(p);
    for (uint32_t i = 0; i < PAGE_SLOTS; i++)
        process_free(p, p->pages[i]);
    proc_memory_close(&p->memory);
    plainer_free(p->plain);
    process_free(p, p->maps);
    process_free(p, p->paths);
    if (p->pool)
        (void)munmap(p->pool, p->pool_size);
    else
        free(p);
}

void stack_process_refresh(struct stack_process *p, bool maps_too)
{
    p->generation++;
    p->overlay_size = 0;
    p->maps_fresh = false;
    if (!maps_too)
        return;
    p->again_ns = 0;
    forget_pages(p);
    (void)process_read_maps(p); /* keeps the old maps when it fails: reads then give -EFAULT */
}

void stack_overlay(struct stack_process *p, uint64_t address, const void *copy, size_t size)
{
    p->overlay = address;
    p->overlay_bytes = copy;
    p->overlay_size = size;
}

size_t stack_read_some(struct stack_process *p, uint64_t address, void *ret, size_t size)
{
    return p->dead ? dead_read(p, address, ret, size)
                   : proc_memory_read(&p->memory, address, ret, size);
}

int stack_read(struct stack_process *p, uint64_t address, void *ret, size_t size)
{
    return stack_read_some(p, address, ret, size) == size ? 0 : -EFAULT;
}

static bool is_stable(const struct stack_process *p, uint64_t address)
{
    const struct proc_mapping *m = process_mapping_at(p, address);
    return m && !m->writable && (m->path[0] == '/' || m->path[0] == '[');
}

static const struct page *page_at(struct stack_process *p, uint64_t address)
{
    uint64_t number = address / PAGE_BYTES;
    struct page **slot = &p->pages[(number ^ number >> 10) % PAGE_SLOTS];
    if (!*slot) {
        *slot = process_alloc(p, sizeof(**slot));
        if (!*slot)
            return NULL;
        (*slot)->address = 1;
    }
    struct page *page = *slot;
    if (page->address == address && (page->generation == 0 || page->generation == p->generation))
        return page;
    page->address = 1;
    if (stack_read(p, address, page->bytes, PAGE_BYTES) < 0)
        return NULL;
    page->address = address;
    page->generation = is_stable(p, address) ? 0 : p->generation;
    return page;
}

int stack_read_cached(struct stack_process *p, uint64_t address, void *ret, size_t size)
{
    unsigned char *out = ret;
    while (size > 0) {
        uint64_t page_start = address & ~(PAGE_BYTES - 1);
        size_t part = (size_t)(page_start + PAGE_BYTES - address);
        if (part > size)
            part = size;
        uint64_t inside = address - p->overlay;
        if (inside < p->overlay_size) {
            if (part > p->overlay_size - inside)
                part = (size_t)(p->overlay_size - inside);
            memcpy(out, p->overlay_bytes + inside, part);
        } else {
            if (p->overlay_size > 0 && p->overlay > address && p->overlay - address < part)
                part = (size_t)(p->overlay - address);
            const struct page *page = page_at(p, page_start);
            if (!page)
                return -EFAULT;
            memcpy(out, page->bytes + (address - page_start), part);
        }
        out += part;
        address += part;
        size -= part;
    }
    return 0;
}
