/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/http_fuzz.c - what libcurl hands on of a server's answer to `probing ship`: any lines
 * and bytes stay within their bounds; any text is an address or refused; and any text as labels of
 * a metric is refused, or gives names and values that are whole.
 */
#include <stdlib.h>
#include <string.h>

/* The command is no library: what reads is built in. */
#include "cli/ship/http_post.c"
#include "cli/ship/libcurl.c"
#include "cli/ship/series.c"
#include "tests/fuzz/fuzz.h"

volatile sig_atomic_t cli_interrupted;

void ship_batch_value(const struct ship_batch *b, uint32_t part, uint32_t row, uint32_t column,
                      struct sql_value *ret)
{
    (void)b, (void)part, (void)row, (void)column;
    *ret = (struct sql_value){.type = SQL_NULL};
}

int ship_batch_time(const struct ship_batch *b)
{
    (void)b;
    return -1;
}

uint32_t answer_rows_count(const struct answer_rows *rows)
{
    (void)rows;
    return 0;
}

/* Lines to the first that is empty, then a body; each in a room of its very size. */
static void answer(const uint8_t *data, size_t size)
{
    const struct http h = {.host = "127.0.0.1", .port = "1", .path = "/"};
    struct http_answer a = {.status = size > 0 ? 100 + 4 * data[0] : 0};
    struct reading r = {.to = &a};
    uint64_t wait = 0;
    bool head = true;

    buf_init(&a.body, HTTP_ANSWER_BYTES + 1);
    for (size_t at = 0, n; at < size; at += n) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        n = end != NULL ? (size_t)(end - data) + 1 - at : size - at;
        char *line = malloc(n);
        fuzz_must(line != NULL);
        memcpy(line, data + at, n);
        size_t taken = (head ? take_head : take_body)(line, 1, n, &r);
        free(line);
        head = head && n > 1;
        if (taken < n)
            break;
    }
    fuzz_must(a.body.size <= HTTP_ANSWER_BYTES && strlen(a.location) < sizeof(a.location));
    fuzz_must(http_judge(&h, 0, &a, &wait) <= 0 && wait <= RETRY_AFTER_MAX * NS_PER_S);
    buf_done(&a.body);
}

static void address(const uint8_t *data, size_t size)
{
    struct http h = {.easy = NULL};
    char text[4096];
    size_t n = size < sizeof(text) - 1 ? size : sizeof(text) - 1;

    memcpy(text, data, n);
    text[n] = '\0';
    if (take_place(text, "1", &h) < 0)
        return;
    fuzz_must(h.host[0] != '\0' && h.port[0] != '\0');
    fuzz_must(h.path[0] == '\0' || h.path[0] == '/');
    fuzz_must(strpbrk(h.host, " /?#") == NULL && strpbrk(h.path, " ?#") == NULL);
}

static void labels(const uint8_t *data, size_t size)
{
    char text[4096];
    struct labels l = {.n = 0};
    size_t n = size < sizeof(text) - 1 ? size : sizeof(text) - 1;

    memcpy(text, data, n);
    text[n] = '\0';
    (void)labels_parse(&l, text);
    for (uint32_t i = 0; i < l.n; i++) {
        fuzz_must(l.list[i].name[strspn(l.list[i].name,
                                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_")] == '\0');
        fuzz_must(i == 0 || strcmp(l.list[i - 1].name, l.list[i].name) < 0);
        const char *v = l.list[i].value;
        for (size_t left = strlen(v), letter; left > 0; v += letter, left -= letter)
            fuzz_must((letter = text_utf8_length(v, left)) != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    labels(data, size);
    answer(data, size);
    address(data, size);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const char text[] = "HTTP/1.1 429 Slow\r\nRetry-After: 5\r\nContent-Type: text/html\r\n"
                               "X-ClickHouse-Exception-Code: 252\r\n\nbody\n";
    struct labels l = {.n = 0};

    fuzz_must(labels_parse(&l, "a=\"x\\\"y\\n\",rank=\"3\"") && l.n == 2);
    fuzz_must(strcmp(l.list[1].name, "exported_rank") == 0);
    fuzz_must(sizeof(text) - 1 <= max);
    memcpy(data, text, sizeof(text) - 1);
    return sizeof(text) - 1;
}
