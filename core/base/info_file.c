/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/info_file.c - a checked file of lines, written at once and read whole.
 *
 * Any thread.  It does not know what the lines say.
 */
#include "core/base/info_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "sdk/lib/hash.h"

#define LINE "check: %016llx\n"
#define LINE_BYTES 24

int info_commit_sum(struct buf *text)
{
    return buf_addf(text, LINE,
                    (unsigned long long)hash_bytes(HASH_FNV, buf_text(text), text->size));
}

/* Takes the last line away when it is right. */
static bool remove_check_line(struct buf *text)
{
    char line[LINE_BYTES + 1];
    if (text->size < LINE_BYTES)
        return false;
    size_t n = text->size - LINE_BYTES;
    (void)snprintf(line, sizeof(line), LINE,
                   (unsigned long long)hash_bytes(HASH_FNV, text->data, n));
    if (memcmp(text->data + n, line, LINE_BYTES) != 0)
        return false;
    text->size = n;
    return true;
}

int info_check(struct buf *text, const char *name)
{
    bool whole = remove_check_line(text);
    (void)buf_text(text); /* a NUL behind what is left */
    return whole ? 0 : err_set(-EBADMSG, "%s is damaged", name);
}

bool info_get(const struct buf *text, const char *key, char *ret, size_t size)
{
    size_t n = strlen(key);
    const char *end = text->data ? text->data + text->size : NULL;
    for (const char *line = text->data, *next; line && line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        next = stop + 1;
        if ((size_t)(stop - line) < n + 1 || memcmp(line, key, n) != 0 || line[n] != ':')
            continue;
        for (line += n + 1; line < stop && *line == ' ';)
            line++;
        (void)snprintf(ret, size, "%.*s", (int)(stop - line), line);
        return true;
    }
    return false;
}
