/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/http_fuzz.c - what a server may answer to `probing ship`: any bytes end, within their
 * bounds; and any text as labels of a metric is refused, or gives names and values that are whole.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The command is no library: what reads is built in. */
#include "cli/ship/http_post.c"
#include "cli/ship/series.c"
#include "tests/fuzz/fuzz.h"

#define PIPE_BYTES ((size_t)32 << 10) /* that a socket takes before anybody reads */

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

static void answer(const uint8_t *data, size_t size)
{
    struct http h = {.host = "127.0.0.1", .port = "1", .fd = -1};
    const struct http_post p = {
        .path = "/", .query = "", .type = "x", .headers = "", .body = "b", .size = 1};
    struct http_answer a;
    int ends[2];

    fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    fuzz_must(send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
    fuzz_must(shutdown(ends[1], SHUT_WR) == 0);
    h.fd = ends[0];
    int rc = http_post(&h, &p, &a);
    uint64_t wait = 0;
    fuzz_must(a.body.size <= HTTP_ANSWER_BYTES);
    fuzz_must(rc < 0 || (a.status >= 200 && a.status <= 999));
    fuzz_must(http_judge(&h, rc, &a, &wait) <= 0 && wait <= RETRY_AFTER_MAX * NS_PER_S);
    buf_done(&a.body);
    http_close(&h);
    (void)close(ends[1]);
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
    answer(data, size < PIPE_BYTES ? size : PIPE_BYTES);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const char text[] =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Slow\r\nRetry-After: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n4;x=\"y\"\r\nabcd\r\n0\r\n\r\n";
    struct labels l = {.n = 0};

    fuzz_must(labels_parse(&l, "a=\"x\\\"y\\n\",rank=\"3\"") && l.n == 2);
    fuzz_must(strcmp(l.list[1].name, "exported_rank") == 0);
    fuzz_must(sizeof(text) - 1 <= max);
    memcpy(data, text, sizeof(text) - 1);
    return sizeof(text) - 1;
}
