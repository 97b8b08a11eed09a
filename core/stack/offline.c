/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/offline.c - a process that is gone: what was kept of its memory, and its map's files.
 * Owner's thread only.  A file that was replaced since gives wrong frames or none: its symbols are
 * believed by the same rules as those of the living.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/stack/internal.h"

static size_t from_pieces(const struct stack_process *p, uint64_t address, void *ret, size_t size)
{
    uint32_t low = 0, high = p->n_dead;
    while (low < high) { /* the first that begins behind it */
        uint32_t middle = low + (high - low) / 2;
        if (p->dead[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct stack_piece *piece = low ? &p->dead[low - 1] : NULL;
    uint64_t inside = piece ? address - piece->address : 0;
    if (!piece || inside >= piece->size)
        return 0;
    size_t n = piece->size - inside < size ? (size_t)(piece->size - inside) : size;
    memcpy(ret, piece->bytes + inside, n);
    return n;
}

/* Memory that could be written to is not in the file. */
static size_t from_file(const struct stack_process *p, uint64_t address, void *ret, size_t size)
{
    const struct proc_mapping *m = process_mapping_at(p, address);
    if (!m || m->writable || m->path[0] != '/')
        return 0;
    if (m->end - address < size)
        size = (size_t)(m->end - address);
    int fd = file_open(AT_FDCWD, m->path); /* the dead one's word: it may be a device */
    if (fd < 0)
        return 0;
    ssize_t n = pread(fd, ret, size, (off_t)(m->offset + (address - m->start)));
    (void)close(fd);
    if (n > 0 && (size_t)n < size) /* a mapping ends with zeros, its file does not */
        memset((char *)ret + n, 0, size - (size_t)n);
    return n > 0 ? size : 0;
}

size_t dead_read(struct stack_process *p, uint64_t address, void *ret, size_t size)
{
    size_t done = 0;
    while (done < size) {
        size_t n = from_pieces(p, address + done, (char *)ret + done, size - done);
        if (n == 0)
            n = from_file(p, address + done, (char *)ret + done, size - done);
        if (n == 0)
            break;
        done += n;
    }
    return done;
}

int stack_process_open_dead(char *maps, size_t size, const struct stack_piece *pieces, uint32_t n,
                            struct stack_process **ret)
{
    static const struct stack_piece nothing;
    struct stack_process *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(-ENOMEM, "no memory to look at a dead process");
    p->memory = PROC_MEMORY_OF(-1);
    p->generation = 1;
    p->dead = pieces ? pieces : &nothing;
    p->n_dead = pieces ? n : 0;
    int rc = process_parse_maps(p, maps, size);
    if (rc < 0) {
        p->paths = NULL;
        stack_process_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}
