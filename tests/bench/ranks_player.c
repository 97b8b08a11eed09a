/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/ranks_player.c - plays the cores of many ranks: each address of 127/8 that somebody
 * connects to is one, and answers queries over websocket as a core does, out of our own engine.
 *
 * usage: ranks_player ROWS [SILENT]
 *
 * Says "port N" and plays until its input ends.  Rank r is 127.0.(r / 250).(r % 250 + 1).  Each has
 * bench.steps with ROWS rows (of one of 16 kinds of rank), as many training steps of 0.1 s with
 * what goes on beside them each second (one kind is late by 20 ms), and process.envs; every
 * SILENT-th takes connections and never answers.  Answers are kept by statement: what is measured
 * is who asks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/server/message.h"
#include "core/sql/distribute/answer_store.h"
#include "tests/bench/bench.h"

#define KINDS 16
#define STEPS 200 /* groups */
#define ANSWERS_MAX 4096
#define ANSWER_BYTES ((size_t)256 << 20)
#define RANK_DIGITS "999999" /* stands for the rank in an answer that is kept */

struct answer {
    char *statement;
    uint32_t kind;
    struct buf bytes; /* as they go to the socket, for the first question of a connection */
    size_t ids[2];    /* where in them the question's number stands: of rows 0, there are none */
};

struct connection {
    int fd;
    uint32_t rank;
    bool upgraded;
    struct buf in, out;
    size_t sent;
};

static struct held ranks[KINDS];
static struct arena mem;
static struct answer answers[ANSWERS_MAX];
static uint32_t n_answers, silent;
static int epoll_fd;

static void must(bool held, const char *what)
{
    if (held)
        return;
    fprintf(stderr, "ranks_player: %s: %s\n", what, err_text()[0] ? err_text() : strerror(errno));
    exit(1);
}

/* ---- what ranks have ---- */

static const struct sql_column step_columns[] = {{"step", SQL_INT, PROBING_PLAIN, ""},
                                                 {"module", SQL_TEXT, PROBING_PLAIN, ""},
                                                 {"dur", SQL_DOUBLE, PROBING_SECONDS, ""},
                                                 {"bytes", SQL_INT, PROBING_BYTES, ""}};
static const struct sql_column env_columns[] = {{"name", SQL_TEXT, PROBING_PLAIN, ""},
                                                {"value", SQL_TEXT, PROBING_PLAIN, ""}};

/* What `stragglers` reads. */
static const struct sql_column timing_columns[] = {
    {"ts", SQL_TIMESTAMP, PROBING_PLAIN, ""},
    {"local_step", SQL_INT, PROBING_PLAIN, ""},
    {"global_step", SQL_INT, PROBING_PLAIN, ""},
    {"rank", SQL_INT, PROBING_PLAIN, ""},
    {"world_size", SQL_INT, PROBING_PLAIN, ""},
    {"step_duration_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"optimizer_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"other_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"dataloader_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"forward_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"backward_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"comm_sec", SQL_DOUBLE, PROBING_SECONDS, ""},
    {"evaluation_sec", SQL_DOUBLE, PROBING_SECONDS, ""}};
static const struct sql_column cpu_columns[] = {{"ts", SQL_TIMESTAMP, PROBING_PLAIN, ""},
                                                {"scope", SQL_TEXT, PROBING_PLAIN, ""},
                                                {"wall_ns", SQL_INT, PROBING_NS, ""},
                                                {"delta_total_ns", SQL_INT, PROBING_NS, ""},
                                                {"delta_invol_ctxt", SQL_INT, PROBING_COUNT, ""},
                                                {"delta_majflt", SQL_INT, PROBING_COUNT, ""},
                                                {"delta_runq_wait_ns", SQL_INT, PROBING_NS, ""},
                                                {"nice", SQL_INT, PROBING_PLAIN, ""},
                                                {"cpus_allowed", SQL_INT, PROBING_PLAIN, ""},
                                                {"delta_stopped_ns", SQL_INT, PROBING_NS, ""}};
#define LATE_KIND 5

static struct sql_value text_of(const char *text)
{
    return (struct sql_value){.type = SQL_TEXT, .text = {text, (uint32_t)strlen(text)}};
}

static struct sql_value number_of(double number)
{
    return (struct sql_value){.type = SQL_DOUBLE, .number = number};
}

static struct sql_value integer_of(int64_t integer)
{
    return (struct sql_value){.type = SQL_INT, .integer = integer};
}

static struct sql_value time_of(int64_t ns)
{
    return (struct sql_value){.type = SQL_TIMESTAMP, .integer = ns};
}

static void fill_training(struct held *h, uint32_t kind, uint32_t rows, int64_t end_ns)
{
    struct held_table *timing, *cpu;
    const struct held_table t = {.schema = "python",
                                 .name = "torch_step_timing",
                                 .columns = timing_columns,
                                 .n_columns = 13,
                                 .n_parts = 1};
    const struct held_table c = {.schema = "cpu",
                                 .name = "utilization",
                                 .columns = cpu_columns,
                                 .n_columns = 10,
                                 .n_parts = 1};
    must(held_add(h, &mem, &t, &timing) == 0 && held_add(h, &mem, &c, &cpu) == 0, "an engine");
    for (uint32_t i = 0; i < rows; i++) {
        int64_t ns = end_ns - (int64_t)(rows - i) * 100000000;
        double late = kind == LATE_KIND ? 0.02 : 0, own = 0.005 + 0.0002 * bench_normal();
        const struct sql_value v[] = {
            time_of(ns),        integer_of(i),      {.type = SQL_NULL},
            {.type = SQL_NULL}, {.type = SQL_NULL}, number_of(0.1),
            number_of(0.002),   number_of(0.001),   number_of(own + late),
            number_of(0.02),    number_of(0.03),    number_of(0.042 - own + 0.005 - late),
            {.type = SQL_NULL}};
        must(held_row(timing, 0, v) == 0, "a row");
        const struct sql_value u[] = {
            time_of(ns),    text_of("process"), integer_of(1000000000), integer_of(900000000),
            integer_of(50), integer_of(0),      integer_of(20000000),   integer_of(0),
            integer_of(8),  integer_of(0)};
        must(i % 10 != 0 || held_row(cpu, 0, u) == 0, "a row");
    }
}

static void fill(struct held *h, uint32_t rows, int64_t end_ns)
{
    struct held_table *steps, *envs;
    char module[32];
    const struct held_table s = {
        .schema = "bench", .name = "steps", .columns = step_columns, .n_columns = 4, .n_parts = 1};
    const struct held_table e = {
        .schema = "process", .name = "envs", .columns = env_columns, .n_columns = 2, .n_parts = 1};
    must(held_init(h) == 0 && held_add(h, &mem, &s, &steps) == 0 &&
             held_add(h, &mem, &e, &envs) == 0,
         "an engine");
    for (uint32_t i = 0; i < rows; i++) {
        (void)snprintf(module, sizeof(module), "layers.%u.attention", i % STEPS / 2);
        const struct sql_value v[] = {
            {.type = SQL_INT, .integer = i % STEPS},
            text_of(module),
            {.type = SQL_DOUBLE, .number = 0.1 + 0.01 * bench_normal()},
            {.type = SQL_INT, .integer = (int64_t)(bench_random() >> 40)}};
        must(held_row(steps, 0, v) == 0, "a row");
    }
    fill_training(h, (uint32_t)(h - ranks), rows, end_ns);
    const struct sql_value env[] = {text_of("RANK"), text_of(RANK_DIGITS)};
    must(held_row(envs, 0, env) == 0, "a row");
}

/* ---- an answer ---- */

static void add_frame(struct buf *b, char op, const char *data, size_t size)
{
    (void)buf_addc(b, (char)(0x80 | op));
    (void)buf_addc(b, size < 126 ? (char)size : size < 65536 ? 126 : 127);
    for (int i = size < 126 ? 0 : size < 65536 ? 2 : 8; i > 0; i--)
        (void)buf_addc(b, (char)((uint64_t)size >> (8 * (i - 1))));
    (void)buf_add(b, data, size);
}

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static int run(struct held *h, const char *statement, struct buf *ret)
{
    struct sql_report report = {0};
    struct sql_writer *w;
    int rc = sql_writer_new(SQL_FORMAT_ARROW, 0, add_bytes, ret, &w);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sql_run(h->engine, statement, strlen(statement), NULL, &sink, &report);
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    sql_writer_free(w);
    return rc;
}

static struct answer *make_answer(const char *statement, uint32_t kind)
{
    static const int64_t id = 1;
    struct answer *a = &answers[n_answers++];
    struct buf arrow;
    char end[ERR_TEXT_BYTES + 64];
    must(n_answers < ANSWERS_MAX, "more statements than are kept");
    a->statement = strdup(statement);
    a->kind = kind;
    buf_init(&a->bytes, ANSWER_BYTES);
    buf_init(&arrow, ANSWER_BYTES);
    (void)buf_add(&arrow, &id, sizeof(id));
    int rc = run(&ranks[kind], statement, &arrow);
    if (rc == 0)
        add_frame(&a->bytes, 2, arrow.data, arrow.size);
    a->ids[0] = rc == 0 ? a->bytes.size - arrow.size : 0;
    (void)snprintf(end, sizeof(end), "{\"id\":1,\"done\":%d%s%s%s}", rc, rc ? ",\"error\":\"" : "",
                   rc ? err_text() : "", rc ? "\"" : "");
    add_frame(&a->bytes, 1, end, strlen(end));
    a->ids[1] = a->bytes.size - strlen(end) + strlen("{\"id\":");
    buf_done(&arrow);
    must(a->statement && !a->bytes.failed, "memory");
    return a;
}

static const struct answer *answer_to(const char *statement, uint32_t kind)
{
    for (uint32_t i = 0; i < n_answers; i++)
        if (answers[i].kind == kind && strcmp(answers[i].statement, statement) == 0)
            return &answers[i];
    return make_answer(statement, kind);
}

/* ---- a connection ---- */

static void hang_up(struct connection *c)
{
    (void)close(c->fd);
    buf_done(&c->in);
    buf_done(&c->out);
    free(c);
}

/* 0: all of it is with the kernel, 1: not yet, -1: it is gone. */
static int push(struct connection *c)
{
    while (c->sent < c->out.size) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.size - c->sent, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN ? 1 : -1;
        c->sent += (size_t)n;
    }
    buf_reset(&c->out);
    c->sent = 0;
    return 0;
}

static void reply(struct connection *c, const char *data, size_t size)
{
    struct message m;
    int64_t id;
    char digits[16];
    struct arena words;
    arena_init(&words, 0);
    must(server_message_parse(&words, data, size, &m, &id) == 0 && m.kind == MESSAGE_RUN,
         "a message");
    const struct answer *a = answer_to(m.argv[m.argc - 1], c->rank % KINDS);
    size_t before = c->out.size;
    (void)buf_add(&c->out, a->bytes.data, a->bytes.size);
    must(id > 0 && id < 10, "a connection of few questions");
    if (a->ids[0] > 0)
        memcpy(c->out.data + before + a->ids[0], &id, sizeof(id));
    c->out.data[before + a->ids[1]] = (char)('0' + id);
    (void)snprintf(digits, sizeof(digits), "%06u", c->rank % 1000000);
    char *at = memmem(c->out.data + before, a->bytes.size, RANK_DIGITS, 6);
    if (at && strstr(m.argv[m.argc - 1], "process.envs"))
        memcpy(at, digits, 6);
    arena_done(&words);
}

/* Whole frames of what has come; all of a client's are masked. */
static void take_frames(struct connection *c)
{
    unsigned char *p = (unsigned char *)c->in.data;
    size_t have = c->in.size, used = 0;
    for (;;) {
        size_t head = 6, n;
        if (have - used < 8)
            break;
        n = p[used + 1] & 0x7f;
        if (n == 126) {
            n = (size_t)p[used + 2] << 8 | p[used + 3];
            head = 8;
        }
        must(n < 65536 && (p[used + 1] & 0x7f) != 127, "a frame of a usual size");
        if (have - used < head + n)
            break;
        unsigned char *data = p + used + head, *mask = data - 4;
        for (size_t i = 0; i < n; i++)
            data[i] ^= mask[i % 4];
        if ((p[used] & 0x0f) == 1)
            reply(c, (const char *)data, n);
        used += head + n;
    }
    memmove(c->in.data, c->in.data + used, have - used);
    c->in.size -= used;
}

static void take_upgrade(struct connection *c)
{
    const char *end = memmem(c->in.data, c->in.size, "\r\n\r\n", 4);
    if (!end)
        return;
    size_t used = (size_t)(end + 4 - c->in.data);
    memmove(c->in.data, c->in.data + used, c->in.size - used);
    c->in.size -= used;
    c->upgraded = true;
    (void)buf_adds(&c->out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                            "Connection: Upgrade\r\nserver: probing/0.1.0 (build 000000000000)"
                            "\r\n\r\n");
}

static void serve(struct connection *c)
{
    char *room = buf_room(&c->in, 4096);
    ssize_t n = room ? recv(c->fd, room, 4096, 0) : 0;
    if (n < 0 && errno == EAGAIN)
        n = 0;
    else if (n <= 0) {
        hang_up(c);
        return;
    }
    c->in.size += (size_t)n;
    if (silent && c->rank % silent == silent - 1)
        return;
    if (!c->upgraded)
        take_upgrade(c);
    if (c->upgraded)
        take_frames(c);
    int rc = push(c);
    struct epoll_event e = {.events = EPOLLIN | (rc == 1 ? EPOLLOUT : 0), .data.ptr = c};
    if (rc < 0)
        hang_up(c);
    else
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void accept_all(int listener)
{
    for (;;) {
        struct sockaddr_in own;
        socklen_t size = sizeof(own);
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct connection *c = calloc(1, sizeof(*c));
        must(c && getsockname(fd, (struct sockaddr *)&own, &size) == 0, "a connection");
        uint32_t address = ntohl(own.sin_addr.s_addr);
        *c = (struct connection){.fd = fd,
                                 .rank = (address >> 8 & 0xff) * 250 + (address & 0xff) - 1};
        buf_init(&c->in, 1 << 20);
        buf_init(&c->out, ANSWER_BYTES);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0, "epoll");
    }
}

static int listen_anywhere(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 4096) == 0 &&
             getsockname(fd, (struct sockaddr *)&a, &size) == 0,
         "listen");
    printf("port %u\n", ntohs(a.sin_port));
    (void)fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    if (argc < 2)
        return fprintf(stderr, "usage: ranks_player ROWS [SILENT]\n"), 2;
    silent = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    arena_init(&mem, 0);
    for (uint32_t k = 0; k < KINDS; k++)
        fill(&ranks[k], (uint32_t)atoi(argv[1]), (int64_t)time(NULL) * 1000000000);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_anywhere();
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &listener};
    must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e) == 0, "epoll");
    e.data.ptr = NULL;
    must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &e) == 0, "epoll");
    for (;;) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (!events[i].data.ptr)
                return 0; /* who started it is gone */
            if (events[i].data.ptr == &listener)
                accept_all(listener);
            else
                serve(events[i].data.ptr);
        }
    }
}
