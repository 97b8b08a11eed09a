/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/message_fuzz.c - feed anything to the readers of client bytes: JSON, HTTP, text lines.
 *
 * One thread, no socket.  The inputs come from driver.c.  It checks what a reader promises, not
 * what it answers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/server/message.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"
#include "tests/fuzz/fuzz.h"

static void feed_message(const char *text, size_t size)
{
    struct arena a;
    struct message m;
    int64_t id;
    arena_init(&a, 64u << 20);
    if (server_message_parse(&a, text, size, &m, &id) == 0) {
        fuzz_must(id >= 0 && id == m.id);
        fuzz_must(m.kind != MESSAGE_RUN ||
                  (m.argc > 0 && m.argc < MESSAGE_ARGS && !m.argv[m.argc]));
        fuzz_must(m.kind != MESSAGE_WATCH || (strlen(m.text) == m.text_size && m.interval_ns > 0));
    }
    if (server_message_args(&a, text, size, &m) == 0)
        fuzz_must(m.argc > 0 && m.argv[0]);
    arena_done(&a);
}

static void feed_http(const char *text, size_t size)
{
    struct http_request r;
    struct buf value;
    int used = server_http_parse(text, size, &r);
    fuzz_must(used <= (int)size);
    if (used <= 0)
        return;
    fuzz_must(r.path.size > 0 && r.path.data[0] == '/');
    fuzz_must(r.path.data >= text && r.path.data + r.path.size <= text + used);
    buf_init(&value, 4096);
    int found = server_http_parameter(r.query, "q", &value);
    fuzz_must(found <= 0 || memchr(buf_text(&value), 0, value.size) == NULL);
    buf_done(&value);
}

static void feed_line(const char *text, size_t size)
{
    const char *words[MESSAGE_ARGS];
    struct arena a;
    size_t total = 0;
    arena_init(&a, 64u << 20);
    int n = server_args_split(&a, text, size, words, MESSAGE_ARGS);
    for (int i = 0; i < n; i++)
        total += strlen(words[i]) + 1;
    fuzz_must(n <= MESSAGE_ARGS && total <= 2 * size + 2);
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1); /* of the very size: a byte too far is seen by asan */
    fuzz_must(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    feed_message(copy, size);
    feed_http(copy, size);
    feed_line(copy, size);
    free(copy);
    return 0;
}
