/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/examples/ask.c - rows of a process, once or as they come.
 *
 *     cc ask.c $(pkg-config --cflags --libs probing-client) -o ask
 *     ./ask 4711 "select name, state from probing.plugins"
 *     ./ask 4711 --watch "select step, forward_sec from python.torch_step_timing"
 *
 * Instead of a pid: a socket's path, or host:port with the token in PROBING_TOKEN.  Ctrl-C ends it.
 */
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t stop;

static void on_interrupt(int number)
{
    (void)number;
    stop = 1;
}

static int connect_to(struct probing_client *c, const char *target)
{
    const char *colon = strrchr(target, ':');
    char host[256];
    if (strchr(target, '/'))
        return probing_client_connect_unix(c, target);
    if (!colon)
        return probing_client_connect_pid(c, (pid_t)strtol(target, NULL, 10));
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - target), target);
    return probing_client_connect_tcp(c, host, (uint16_t)strtol(colon + 1, NULL, 10));
}

static int print_piece(void *arg, const char *data, size_t size)
{
    (void)arg;
    (void)fwrite(data, 1, size, stdout);
    return 0;
}

static int run_query(struct probing_client *c, const char *sql)
{
    const char *words[] = {"query", "--format", "csv", "--", sql};
    int status = 0, rc = probing_client_run(c, 5, words, 0, print_piece, NULL, &status);
    if (rc < 0 || status < 0)
        return -1;
    if (*probing_client_note(c)) /* rows were lost, or there are none, and why */
        fprintf(stderr, "%s\n", probing_client_note(c));
    return status;
}

static int on_event(void *arg, const struct probing_client_event *e)
{
    if (e->kind == PROBING_CLIENT_DATA)
        print_piece(NULL, e->text, e->size);
    else if (e->kind == PROBING_CLIENT_DROPPED)
        fprintf(stderr, "too slow: %llu messages were lost\n", (unsigned long long)e->dropped);
    else if (e->kind == PROBING_CLIENT_DONE && e->status < 0) /* the statement is wrong, ... */
        *(int *)arg = fprintf(stderr, "%s\n", e->text) > 0;
    (void)fflush(stdout);
    return 0;
}

static int run_watch(struct probing_client *c, const char *sql)
{
    struct probing_client_watch w;
    int status = 0;
    memset(&w, 0, sizeof(w));
    w.size = sizeof(w);
    w.sql = sql;
    if (probing_client_start_watch(c, &w) < 0)
        return -1;
    int rc = probing_client_stream(c, on_event, &status, /* timeout_ns= */ 0, &stop);
    return rc < 0 && !stop ? -1 : status;
}

int main(int argc, char **argv)
{
    struct probing_client_options options;
    int follows = argc == 4 && strcmp(argv[2], "--watch") == 0;

    if (argc != 3 && !follows)
        return fprintf(stderr, "usage: %s PID|SOCKET|HOST:PORT [--watch] SQL\n", argv[0]) > 0;
    signal(SIGINT, on_interrupt);
    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.stop = &stop;
    options.token = getenv("PROBING_TOKEN");
    struct probing_client *c = probing_client_new(&options);
    int rc = c ? connect_to(c, argv[1]) : -1;
    if (rc == 0)
        rc = follows ? run_watch(c, argv[3]) : run_query(c, argv[2]);
    if (rc < 0)
        fprintf(stderr, "%s\n", probing_client_error(c));
    probing_client_free(c);
    return rc < 0 ? 1 : rc;
}
