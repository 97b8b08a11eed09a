/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/link.c - see link.h: the side of whoever asks.
 *
 * One thread; children that were forked may ask, too, as each message is whole and brings the
 * descriptors for its answer.
 */
#include "cli/link/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/link/broker.h"
#include "cli/link/frame.h"
#include "cli/link/pass_descriptors.h"
#include "cli/link/relay_tree.h"
#include "cli/link/remote_shell.h"
#include "cli/link/token.h"
#include "cli/target/auth_token.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/array.h"
#include "sdk/lib/hash.h"

#define NAMES_BYTES ((size_t)64 << 10) /* in one message */
#define LOOK_MS 100                    /* between looks at Ctrl-C */
#define READ_BYTES ((size_t)64 << 10)
#define PAUSE_MAX_NS (600 * NS_PER_S) /* between tries to reach a host that was lost */
#define AGAIN_NS NS_PER_S             /* until another process beside us is started */

/* The process beside us, and what it was told; of this process and its children. */
static struct {
    int control;      /* 0: none yet, or it was lost */
    pid_t pid;        /* its own */
    uint64_t lost_ns; /* when the last one was */
    const char *rsh, *program;
    uint32_t degree, n, room;
    struct known_host {
        char *name;
        bool listens;
        uint32_t number;
        uint32_t tries;    /* in vain, one after the other */
        uint64_t began_ns; /* the last of them */
    } * hosts;
    uint32_t *slots, n_slots; /* hosts by name, twice as many or more; UINT32_MAX: free */
} the;

int link_descriptor(void)
{
    return the.control > 0 ? the.control : -1;
}

void link_adopt(int control)
{
    the.control = control;
}

static const char *from_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : otherwise;
}

void link_configure(const char *rsh, const char *program, uint32_t degree)
{
    the.rsh = rsh;
    the.program = program;
    the.degree = degree;
}

static uint64_t timeout_ns; /* 0: as usual */

void link_set_timeout(uint64_t ns)
{
    timeout_ns = ns;
}

uint64_t link_timeout(uint64_t usual_ns)
{
    return timeout_ns > 0 ? timeout_ns : usual_ns;
}

/* ---- the process beside us ---- */

/* Why it ended, as far as we are its parent. */
static void ending_words(char *ret, size_t size)
{
    int status = 0;
    pid_t got = 0;

    for (int i = 0; i < LOOK_MS && got == 0 && the.pid != 0; i++) {
        got = waitpid(the.pid, &status, WNOHANG);
        if (got == 0)
            (void)poll(NULL, 0, 1);
    }
    if (got > 0 && WIFSIGNALED(status))
        (void)snprintf(ret, size, ": signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (got > 0 && WEXITSTATUS(status) != 0)
        (void)snprintf(ret, size, ": %s", cli_fork_why(WEXITSTATUS(status)));
}

/* A command that goes on for days starts another one: link_hosts(), link_listener(). */
static int broker_gone(void)
{
    static char words[160]; /* one thread */

    if (the.control > 0) {
        (void)snprintf(words, sizeof(words),
                       "the process that holds the connections to other machines has ended");
        ending_words(words + strlen(words), sizeof(words) - strlen(words));
        (void)close(the.control);
        the.control = 0;
        the.lost_ns = clock_monotonic();
    }
    return err_set(-EPIPE, "%s", words);
}

static int begin_broker(void)
{
    int ends[2], room = (int)ASK_BYTES + 4096;

    if (the.control > 0)
        return 0;
    if (the.lost_ns != 0 && clock_monotonic() - the.lost_ns < AGAIN_NS)
        return broker_gone();
    while (the.n > 0) /* the numbers were the last one's */
        free(the.hosts[--the.n].name);
    the.n_slots = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == -1)
        return err_set(-errno, "no socket: %s", strerror(errno));
    (void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    (void)fflush(stdout);
    (void)fflush(stderr);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        broker_run(ends[1]);
    }
    int rc =
        pid == -1 ? err_set(-errno, "no process for other machines: %s", cli_fork_why(errno)) : 0;
    (void)close(ends[1]);
    if (rc < 0)
        (void)close(ends[0]);
    else
        the.control = ends[0];
    the.pid = pid;
    return rc;
}

static int send_message(const struct buf *b, const int *fds, int n)
{
    if (the.control <= 0)
        return broker_gone();
    if (b->failed || b->size > ASK_BYTES)
        return err_set(-E2BIG, "the words for another machine are longer than %u bytes", ASK_BYTES);
    int rc = pass_send(the.control, b->data, b->size, fds, n);
    while (rc == -EINTR && !cli_interrupted)
        rc = pass_send(the.control, b->data, b->size, fds, n);
    return rc == -EINTR ? err_set(-ECANCELED, "interrupted") : rc < 0 ? broker_gone() : 0;
}

static void begin_ask(struct buf *b, enum ask_kind kind, uint32_t number)
{
    char head[5] = {(char)kind};

    store_le32(head + 1, number);
    buf_init(b, ASK_BYTES);
    (void)buf_add(b, head, sizeof(head));
}

/* An answer of `size` bytes over a pipe of its own. */
static int ask_broker(const struct buf *b, void *ret, size_t size)
{
    int ends[2];
    size_t have = 0;

    if (pipe2(ends, O_CLOEXEC) == -1)
        return err_set(-errno, "no pipe: %s", strerror(errno));
    int rc = send_message(b, &ends[1], 1);
    (void)close(ends[1]);
    while (rc == 0 && have < size) {
        struct pollfd p = {.fd = ends[0], .events = POLLIN};
        (void)poll(&p, 1, LOOK_MS);
        ssize_t n = p.revents != 0 ? read(ends[0], (char *)ret + have, size - have) : -1;
        have += n > 0 ? (size_t)n : 0;
        rc = n == 0 ? broker_gone() : cli_interrupted ? err_set(-ECANCELED, "interrupted") : 0;
    }
    (void)close(ends[0]);
    return rc;
}

/* ---- hosts ---- */

/* Give the slot in which the host stands, or may be put. */
static uint32_t *slot_of(const char *name, bool listens)
{
    uint32_t i = (uint32_t)hash_text(HASH_FNV + listens, name);

    for (;; i++) {
        uint32_t *slot = &the.slots[i & (the.n_slots - 1)];
        const struct known_host *h = *slot != UINT32_MAX ? &the.hosts[*slot] : NULL;
        if (h == NULL || (h->listens == listens && strcmp(h->name, name) == 0))
            return slot;
    }
}

static bool grow_slots(void)
{
    const uint32_t n = the.n_slots > 0 ? 2 * the.n_slots : 64;
    uint32_t *slots = 2 * the.n < the.n_slots ? the.slots : malloc(n * sizeof(*slots));

    if (slots == NULL || slots == the.slots)
        return slots != NULL;
    free(the.slots);
    memset(slots, 0xff, n * sizeof(*slots));
    the.slots = slots;
    the.n_slots = n;
    for (uint32_t i = 0; i < the.n; i++)
        *slot_of(the.hosts[i].name, the.hosts[i].listens) = i;
    return true;
}

static struct known_host *find_known(const char *name, bool listens)
{
    uint32_t at = the.n > 0 ? *slot_of(name, listens) : UINT32_MAX;

    return at != UINT32_MAX ? &the.hosts[at] : NULL;
}

int link_known(const char *name, bool listens, uint32_t *ret)
{
    const struct known_host *h = the.control > 0 ? find_known(name, listens) : NULL;

    if (h == NULL)
        return -ENOENT;
    *ret = h->number;
    return 0;
}

const char *link_name_of(uint32_t host)
{
    static char name[400]; /* one thread */

    for (uint32_t i = 0; i < the.n; i++)
        if (the.hosts[i].number == host) {
            (void)snprintf(name, sizeof(name), "%s:%s", the.hosts[i].listens ? "relay" : "ssh",
                           the.hosts[i].name);
            return name;
        }
    return NULL;
}

bool link_is_due(const char *name, bool listens)
{
    struct known_host *known = find_known(name, listens);
    uint64_t pause = NS_PER_S;
    struct link_host h;

    if (known == NULL || link_host_of(known->number, &h) < 0)
        return false;
    if (h.reached) {
        known->tries = 0;
        return false;
    }
    if (h.awaited)
        return false;
    for (uint32_t k = 0; k < known->tries && pause < PAUSE_MAX_NS; k++)
        pause *= 2;
    return clock_monotonic() - known->began_ns >= (pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS);
}

/* A host that was tried before has a new number. */
static int remember_host(const char *name, bool listens, uint32_t number)
{
    struct known_host *h = find_known(name, listens);

    if (h != NULL) {
        h->number = number;
        h->began_ns = clock_monotonic();
        h->tries++;
        return 0;
    }
    struct known_host *list = array_grow(the.hosts, the.n, &the.room, sizeof(*list), UINT32_MAX);
    char *copy = strdup(name);
    if (list != NULL)
        the.hosts = list;
    if (list == NULL || copy == NULL || !grow_slots()) {
        free(copy);
        return err_set(-ENOMEM, "no memory for hosts");
    }
    the.hosts[the.n] = (struct known_host){
        .name = copy, .listens = listens, .number = number, .began_ns = clock_monotonic()};
    *slot_of(name, listens) = the.n;
    the.n++;
    return 0;
}

static int say_how(void)
{
    const char *number = from_environment("PROBING_RELAY_DEGREE", "");
    uint64_t degree = the.degree;
    struct buf b;

    if (degree == 0 && number[0] != '\0' &&
        (parse_u64(number, &degree) < 0 || degree == 0 || degree > 1024))
        return err_set(-EINVAL, "PROBING_RELAY_DEGREE must be a number from 1 to 1024, not '%s'",
                       number);
    begin_ask(&b, ASK_HOW, degree > 0 ? (uint32_t)degree : TREE_DEGREE);
    const char *rsh = the.rsh != NULL ? the.rsh : from_environment("PROBING_RSH", LINK_RSH);
    const char *program =
        the.program != NULL ? the.program : from_environment("PROBING_REMOTE", "probing");
    (void)buf_add(&b, rsh, strlen(rsh) + 1);
    (void)buf_add(&b, program, strlen(program) + 1);
    int rc = strlen(rsh) > 1000 || strlen(program) > 1000
                 ? err_set(-E2BIG, "the remote shell, or the name of probing there, is too long")
                 : send_message(&b, NULL, 0);
    buf_done(&b);
    return rc;
}

static int say_names(const char *const *names, uint32_t n)
{
    struct buf b;
    int rc = 0;

    buf_init(&b, ASK_BYTES);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (!host_is_name(names[i]))
            rc = err_set(-EINVAL, "'%s' is no name of a host", names[i]);
        if (b.size == 0)
            (void)buf_addc(&b, ASK_NAMES);
        (void)buf_add(&b, names[i], strlen(names[i]) + 1);
        if (rc == 0 && (b.size > NAMES_BYTES || i + 1 == n)) {
            rc = send_message(&b, NULL, 0);
            buf_reset(&b);
        }
    }
    buf_done(&b);
    return rc;
}

int link_hosts(const char *const *names, uint32_t n, uint32_t *ret_first)
{
    struct buf b;
    int rc =
        n > TREE_HOSTS_MAX ? err_set(-E2BIG, "more than %d hosts", TREE_HOSTS_MAX) : begin_broker();

    if (rc == 0)
        rc = say_how();
    if (rc == 0)
        rc = say_names(names, n);
    begin_ask(&b, ASK_START, 0);
    if (rc == 0)
        rc = ask_broker(&b, ret_first, sizeof(*ret_first));
    buf_done(&b);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = remember_host(names[i], /* listens= */ false, *ret_first + i);
    return rc;
}

int link_listener(const char *name, uint32_t *ret)
{
    char token[TOKEN_BYTES] = "";
    const char head[1] = {ASK_CONNECT};
    struct buf b;
    int rc = begin_broker();

    if (rc == 0)
        rc = link_token(/* file= */ NULL, token, sizeof(token));
    buf_init(&b, ASK_BYTES);
    (void)buf_add(&b, head, 1);
    (void)buf_add(&b, name, strlen(name) + 1);
    (void)buf_add(&b, token, strlen(token) + 1);
    if (rc == 0)
        rc = ask_broker(&b, ret, sizeof(*ret));
    buf_done(&b);
    return rc == 0 ? remember_host(name, /* listens= */ true, *ret) : rc;
}

int link_host_of(uint32_t host, struct link_host *ret)
{
    struct buf b;

    begin_ask(&b, ASK_HOST, host);
    int rc = ask_broker(&b, ret, sizeof(*ret));
    buf_done(&b);
    return rc;
}

/* ---- connections ---- */

int link_open(const struct link_member *m, int *ret_fd, int *ret_note)
{
    int ends[2] = {-1, -1}, note[2] = {-1, -1};
    struct buf b;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == -1 ||
        pipe2(note, O_CLOEXEC | O_NONBLOCK) == -1) {
        int rc = err_set(-errno, "no socket: %s", strerror(errno));
        for (int i = 0; i < 2; i++)
            if (ends[i] != -1)
                (void)close(ends[i]);
        return rc;
    }
    begin_ask(&b, ASK_OPEN, m->host);
    (void)buf_addf(&b, "%lld %lld %s", (long long)m->pid, (long long)m->start_time, m->directory);
    (void)buf_addc(&b, '\0');
    int rc = send_message(&b, (const int[]){ends[1], note[1]}, 2);
    buf_done(&b);
    (void)close(ends[1]);
    (void)close(note[1]);
    if (rc < 0) {
        (void)close(ends[0]);
        (void)close(note[0]);
        return rc;
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *ret_fd = ends[0];
    *ret_note = note[0];
    return 0;
}

/* ---- commands ---- */

/* b: what is asked for. */
static int begin_run(const struct buf *b, struct link_run *ret)
{
    int ends[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, rc = 0;

    *ret = (struct link_run){.out = -1, .err = -1, .end = -1};
    buf_init(&ret->ending, 4096);
    for (int i = 0; i < 3 && rc == 0; i++)
        if (pipe2(ends[i], O_CLOEXEC) == -1)
            rc = err_set(-errno, "no pipe: %s", strerror(errno));
    if (rc == 0)
        rc = send_message(b, (const int[]){ends[0][1], ends[1][1], ends[2][1]}, 3);
    for (int i = 0; i < 3; i++) {
        if (ends[i][1] != -1)
            (void)close(ends[i][1]);
        if (rc < 0 && ends[i][0] != -1)
            (void)close(ends[i][0]);
    }
    if (rc == 0) {
        ret->out = ends[0][0];
        ret->err = ends[1][0];
        ret->end = ends[2][0];
    }
    return rc;
}

int link_run_begin(uint32_t host, int argc, const char *const *argv, struct link_run *ret)
{
    struct buf b;

    begin_ask(&b, ASK_RUN, host);
    for (int i = 0; i < argc; i++)
        (void)buf_add(&b, argv[i], strlen(argv[i]) + 1);
    int rc = begin_run(&b, ret);
    buf_done(&b);
    return rc;
}

int link_merge_begin(uint32_t host, const struct buf *question, struct link_run *ret)
{
    struct buf b;

    begin_ask(&b, ASK_MERGE, host);
    (void)buf_add(&b, question->data, question->size);
    int rc = begin_run(&b, ret);
    buf_done(&b);
    return rc;
}

void link_run_polls(const struct link_run *r, struct pollfd polls[3])
{
    polls[0] = (struct pollfd){.fd = r->out, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = r->err, .events = POLLIN};
    polls[2] = (struct pollfd){.fd = r->end, .events = POLLIN};
}

static void read_ending(struct link_run *r)
{
    char *words = NULL;
    const char *text = buf_text(&r->ending);

    r->status = -EPIPE;
    if (r->ending.size == 0) {
        (void)snprintf(r->why, sizeof(r->why), "%s", err_why(broker_gone()));
        return;
    }
    r->status = (int)strtoll(text, &words, 10); /* of broker.c, not of a host */
    (void)snprintf(r->why, sizeof(r->why), "%s", words + (words[0] == ' '));
}

/* A bounded piece of descriptor i. */
static int take_piece(struct link_run *r, int i, char *room,
                      int (*fn)(void *arg, bool error, const char *data, size_t size), void *arg)
{
    int *fd = i == 0 ? &r->out : i == 1 ? &r->err : &r->end;
    ssize_t n = read(*fd, room, i == 2 ? 1024 : READ_BYTES);

    if (n == -1)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (n > 0 && i == 2)
        return buf_add(&r->ending, room, (size_t)n);
    if (n > 0)
        return fn(arg, i == 1, room, (size_t)n);
    (void)close(*fd);
    *fd = -1;
    if (i == 2)
        read_ending(r);
    return 0;
}

int link_run_turn(struct link_run *r, const struct pollfd polls[3],
                  int (*fn)(void *arg, bool error, const char *data, size_t size), void *arg)
{
    char room[READ_BYTES];
    int rc = 0;

    for (int i = 0; i < 3 && rc == 0; i++)
        if (polls[i].fd != -1 && polls[i].revents != 0)
            rc = take_piece(r, i, room, fn, arg);
    return rc < 0 ? rc : r->out == -1 && r->err == -1 && r->end == -1;
}

void link_run_end(struct link_run *r)
{
    int *const fds[] = {&r->out, &r->err, &r->end};

    for (int i = 0; i < 3; i++) {
        if (*fds[i] != -1)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
    buf_done(&r->ending);
}

int link_run_all(uint32_t host, int argc, const char *const *argv,
                 int (*fn)(void *arg, bool error, const char *data, size_t size), void *arg)
{
    struct link_run r;
    struct pollfd polls[3];
    int rc = link_run_begin(host, argc, argv, &r);

    while (rc == 0 && !cli_interrupted) {
        link_run_polls(&r, polls);
        (void)poll(polls, 3, LOOK_MS);
        rc = link_run_turn(&r, polls, fn, arg);
    }
    if (rc == 1 && r.status < 0)
        rc = err_set(r.status, "%s", r.why);
    else if (rc == 1)
        rc = r.status;
    else if (rc == 0)
        rc = err_set(-ECANCELED, "interrupted");
    link_run_end(&r);
    return rc;
}

int link_print_words(uint32_t host, const char *data, size_t size)
{
    char *text = strndup(data, size), *mended = malloc(2 * size + READ_BYTES);

    if (text == NULL || mended == NULL || strlen(text) != size)
        (void)fwrite(data, 1, size, stderr);
    else {
        link_hints(host, text, mended, 2 * size + READ_BYTES);
        (void)fputs(mended, stderr);
    }
    free(text);
    free(mended);
    return fflush(stderr) == 0 ? 0 : -EPIPE;
}

static int print_piece(void *arg, bool error, const char *data, size_t size)
{
    const struct link_member *m = arg;
    FILE *to = stdout;

    if (error)
        return link_print_words(m->host, data, size);
    return fwrite(data, 1, size, to) == size && fflush(to) == 0 ? 0 : -EPIPE;
}

int link_run_print(const struct link_member *m, int argc, const char *const *argv)
{
    const char **words = calloc((size_t)argc + 2, sizeof(char *));

    if (words == NULL)
        return err_set(-ENOMEM, "no memory for words");
    words[0] = "-t";
    words[1] = m->what;
    memcpy(words + 2, argv, (size_t)argc * sizeof(char *));
    int rc = link_run_all(m->host, argc + 2, words, print_piece, (void *)(uintptr_t)m);
    free(words);
    return rc;
}
