/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/compiled_test.h - plugins that tests compile with cc, as a stranger would, and
 * those that hang until they are let go.
 */
#ifndef CORE_PLUGIN_HOST_COMPILED_TEST_H
#define CORE_PLUGIN_HOST_COMPILED_TEST_H

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/plugin_host/host_test.h"

extern char **environ;

/* ---- plugins ---- */

/* Every test plugin begins so; the rest is one row's own. */
static const char head[] =
    "#include <probing/plugin.h>\n#include <errno.h>\n"
    "static int self_, n_; static const struct probing_host *h_; static int init_result, "
    "start_result;\n"
    "static int init(const struct probing_host *h, void **s)\n"
    "{ h_ = h; *s = &self_; (void)n_; return init_result ? h->fail(h, init_result, \"no driver\") "
    ": 0; }\n"
    "static int start(void *s)\n"
    "{ (void)s; return start_result ? h_->fail(h_, start_result, \"no hook\") : 0; }\n"
    "static void destroy(void *s) { (void)s; init_result = start_result = 0; }\n"
    "#define BODY .size = sizeof(struct probing_plugin), .init = init, .start = start, .destroy = "
    "destroy\n";

static inline bool compile(const char *name, const char *body)
{
    char source[160], target[160];
    pid_t pid;
    int status = -1;

    (void)snprintf(source, sizeof(source), "%s/%s.c", folder, name);
    (void)snprintf(target, sizeof(target), "%s/%s.so", folder, name);
    struct buf b;
    buf_init(&b, 65536);
    (void)buf_adds(&b, head);
    (void)buf_adds(&b, body);
    CHECK_INT(file_write(AT_FDCWD, source, b.data, b.size, 0600), 0);
    buf_done(&b);
    char *argv[] = {(char[]){"cc"},
                    (char[]){"-shared"},
                    (char[]){"-fPIC"},
                    (char[]){"-fvisibility=hidden"},
                    (char[]){"-w"},
                    (char[]){"-Iinclude"},
                    source,
                    (char[]){"-o"},
                    target,
                    NULL};
    if (posix_spawnp(&pid, "cc", NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid)
        return false;
    return status == 0;
}

static inline bool there_is_cc(void)
{
    return compile("there", "const int nothing;\n");
}

/* The function that hangs has been called, and may not have come as far as the pipe. */
static inline void let_go(const char *name)
{
    char path[160];
    int fd = -1;
    (void)snprintf(path, sizeof(path), "%s/%s.pipe", folder, name);
    for (int i = 0; fd == -1 && i < 60000; i++) {
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd == -1)
            (void)nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
    CHECK(fd != -1);
    (void)close(fd);
}

static inline void until_it_came_back(void)
{
    struct event never;
    struct buf names;
    uint32_t n = 1;
    CHECK_INT(event_init(&never), 0);
    for (int i = 0; n > 0 && i < 5000; i++) {
        (void)event_wait(&never, NS_PER_MS);
        buf_init(&names, 256);
        n = host_plugins_inside(host, &names);
        buf_done(&names);
    }
    CHECK_INT(n, 0);
    event_done(&never);
}

/* How long what hangs is waited for; all else may take as long as a busy machine needs. */
#define HUNG_NS (500 * NS_PER_MS)
#define CALL_NS (60 * NS_PER_S)

#endif
