/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_test.c - plugins that are right and wrong in every way, and the door that
 * takes them.
 *
 * The plugins are compiled here with cc, as a stranger would; without a compiler all cases are
 * skipped aloud.
 */
#include "core/plugin_host/compiled_test.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"

/* A start or stop that hangs until somebody opens the other end of a pipe. */
static void compile_hanging(const char *name, const char *step)
{
    char body[1024], pipe_path[160];
    (void)snprintf(pipe_path, sizeof(pipe_path), "%s/%s.pipe", folder, name);
    CHECK_INT(mkfifo(pipe_path, 0600), 0);
    (void)snprintf(body, sizeof(body),
                   "#include <fcntl.h>\n#include <unistd.h>\n"
                   "static int hang(void *s) { int fd = open(\"%s\", O_RDONLY); char c;\n"
                   "  (void)!read(fd, &c, 1); close(fd); return 0; }\n"
                   "const struct probing_plugin probing_plugin_v1 __attribute__((visibility("
                   "\"default\"))) = { BODY, .abi = PROBING_ABI, .name = \"%s\", .%s = hang };\n",
                   pipe_path, name, step);
    CHECK(compile(name, body));
}

TEST(gives_up_a_start_that_hangs_and_goes_on)
{
    struct buf value;
    compile_hanging("slow", "start");
    CHECK(compile("quick",
                  "const struct probing_plugin probing_plugin_v1 __attribute__((visibility("
                  "\"default\"))) = { BODY, .abi = PROBING_ABI, .name = \"quick\" };\n"));
    setup(true);
    host_call_limit(host, HUNG_NS);
    CHECK_INT(host_plugin_load(host, "slow", NULL, -1), -ETIMEDOUT);
    CHECK(strstr(err_text(), "plugin 'slow' failed at start: it has not returned after 0.5 s"));
    host_call_limit(host, CALL_NS);
    CHECK_INT(host_plugin_load(host, "slow", NULL, -1), -EBUSY);
    CHECK_INT(host_plugin_load(host, "quick", NULL, -1), 0); /* others are served */
    buf_init(&value, 64);
    CHECK_INT(host_config_set(host, "later.x", "1"), 1);
    buf_done(&value);
    let_go("slow");
    until_it_came_back();
    CHECK_INT(host_plugin_stop(host, "slow"), -ENOENT); /* undone, not running */
    CHECK_INT(host_plugins_stop(host, false), 0);
    teardown();
}

/* An init that comes back late is undone, and is not taken for one that waits for its start. */
TEST(gives_up_an_init_that_hangs_and_begins_afresh)
{
    char body[1024], pipe_path[160];
    (void)snprintf(pipe_path, sizeof(pipe_path), "%s/begins.pipe", folder);
    CHECK_INT(mkfifo(pipe_path, 0600), 0);
    (void)snprintf(body, sizeof(body),
                   "#include <fcntl.h>\n#include <unistd.h>\n"
                   "static int there, begun;\n"
                   "static int come(const struct probing_host *h, void **s) { char c; int fd;\n"
                   "  if (!begun++) { fd = open(\"%s\", O_RDONLY); (void)!read(fd, &c, 1); "
                   "close(fd); }\n"
                   "  there = 1; return init(h, s); }\n"
                   "static int run(void *s) { return there ? 0 : -EPROTO; }\n"
                   "static void go(void *s) { there = 0; }\n"
                   "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {\n"
                   " .size = sizeof(struct probing_plugin), .abi = PROBING_ABI,\n"
                   " .name = \"begins\", .init = come, .start = run, .destroy = go };\n",
                   pipe_path);
    CHECK(compile("begins", body));
    setup(true);
    host_call_limit(host, HUNG_NS);
    CHECK_INT(host_plugin_load(host, "begins", NULL, -1), -ETIMEDOUT);
    host_call_limit(host, CALL_NS);
    let_go("begins");
    until_it_came_back();
    CHECK_INT(host_plugin_load(host, "begins", NULL, -1), 0);
    CHECK_INT(host_plugins_stop(host, false), 0);
    teardown();
}

/* ---- a machine that has no time for us ---- */

/* The open of a list of descriptors that counts this down to 0 gets no processor until `fed`. */
static _Atomic int starves;
static struct event fed;

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(args, int) : 0;
    va_end(args);
    if (strcmp(path, "/proc/self/fd") == 0 && atomic_fetch_sub(&starves, 1) == 1)
        (void)event_wait(&fed, 60 * NS_PER_S);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* In torch's place a program died of it: the second start had no host any more. */
TEST(a_load_that_was_left_before_start_is_not_gone_on_with_beside_another)
{
    int rc = -EAGAIN;
    CHECK(compile("once",
                  "static int there, runs;\n"
                  "static int come(const struct probing_host *h, void **s)\n"
                  "{ if (there) __builtin_trap(); there = 1; return init(h, s); }\n"
                  "static int run(void *s) { if (!there || runs) __builtin_trap(); runs = 1; "
                  "return 0; }\n"
                  "static int end(void *s) { runs = 0; return 0; }\n"
                  "static void go(void *s) { if (runs) __builtin_trap(); there = 0; }\n"
                  "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {\n"
                  " .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = \"once\",\n"
                  " .init = come, .start = run, .stop = end, .destroy = go };\n"));
    CHECK_INT(event_init(&fed), 0);
    setup(true);
    host_call_limit(host, HUNG_NS);
    atomic_store(&starves, 4); /* for limits, around init, and before start */
    CHECK_INT(host_plugin_load(host, "once", NULL, -1), -EAGAIN);
    CHECK(strstr(err_text(), "takes a long time to start") != NULL);
    host_call_limit(host, CALL_NS);
    CHECK_INT(host_plugin_load(host, "once", NULL, -1), -EAGAIN);
    CHECK(strstr(err_text(), "is still being loaded by a thread that took too long") != NULL);
    event_raise(&fed);
    for (int i = 0; rc == -EAGAIN && i < 60000; i++) {
        rc = host_plugin_load(host, "once", NULL, -1);
        if (rc == -EAGAIN)
            (void)nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
    CHECK_INT(rc, 0);
    CHECK_INT(host_plugins_stop(host, false), 0);
    teardown();
    event_done(&fed);
}

/* Freed around a plugin that was still inside: its memory is left, and reachable. */
static struct host *left_host;
static struct tables *left_tables;

TEST(leaves_a_stop_that_hangs_behind)
{
    compile_hanging("stuck", "stop");
    setup(true);
    CHECK_INT(host_plugin_load(host, "stuck", NULL, -1), 0);
    host_call_limit(host, HUNG_NS);
    CHECK_INT(host_plugins_stop(host, false), 0);
    left_host = host;
    left_tables = tables;
    host_free(host); /* at once; its memory is the thread's that is still inside */
    setup(true);
    CHECK_INT(host_plugin_load(host, "stuck", NULL, -1), -EBUSY);
    CHECK(strstr(err_text(), "has not returned"));
    struct host *now = host;
    host = left_host;
    let_go("stuck");
    until_it_came_back();
    host = now;
    CHECK_INT(host_plugin_load(host, "stuck", NULL, -1), 0);
    host_call_limit(host, HUNG_NS);
    CHECK_INT(host_plugin_stop(host, "stuck"), -ETIMEDOUT);
    let_go("stuck");
    until_it_came_back();
    teardown();
}

TEST(loads_runs_stops_and_loads_again)
{
    struct client c;
    CHECK(compile(
        "good",
        "static int hello(void *s, int n, const char *const *v, struct probing_reply *o)\n"
        "{ return s == &self_ && n == 1 && v[0] ? h_->reply(o, \"hello\", 5) : -EINVAL; }\n"
        "static int scan(void *s, struct probing_rows *o)\n"
        "{ union probing_cell c = {.i = 42}; (void)s; return h_->emit(o, &c, 1); }\n"
        "static int full(const struct probing_host *h, void **s) {\n"
        "  static const struct probing_column cols[] = {{.name = \"x\", .type = 1, .doc = \"\"}};\n"
        "  static const struct probing_command cmd = {.size = sizeof cmd, .name = \"hello\","
        " .doc = \"\", .usage = \"\", .run = hello};\n"
        "  struct probing_table_desc d = {.size = sizeof d, .column_size = sizeof *cols,"
        " .name = \"numbers\", .doc = \"\", .columns = cols, .n_columns = 1, .scan = scan};\n"
        "  struct probing_table *t; int r = init(h, s);\n"
        "  return r < 0 || (r = h->table(h, &d, &t)) < 0 ? r : h->command(h, &cmd); }\n"
        "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = { BODY,\n"
        " .abi = PROBING_ABI, .name = \"good\", .version = \"1\", .doc = \"d\", .init = full "
        "};\n"));
    setup(true);
    for (int i = 0; i < 20; i++) {
        client_init(&c);
        CHECK_INT(host_plugin_load(host, "good", NULL, -1), 0);
        CHECK_INT(host_plugin_load(host, "good", NULL, -1), -EALREADY);
        CHECK_INT(host_run(host, WORDS("hello"), &c.reply), 0);
        CHECK_STR(buf_text(&c.text), "hello");
        struct table *t = tables_find(tables, "good", "numbers");
        CHECK(t && !atomic_load(&t->retired));
        CHECK_INT(host_plugin_stop(host, "good"), 0);
        CHECK(t && atomic_load(&t->retired));
        CHECK_INT(host_run(host, WORDS("hello"), &c.reply), -ENOENT);
        CHECK(strstr(err_text(), "plugin load good") != NULL);
        struct probing_rows rows = {.table = t};
        CHECK(t && t->scan(t->self, &rows) == -ESHUTDOWN); /* a query that still holds the table */
        client_done(&c);
    }
    CHECK_INT(host_plugin_stop(host, "goood"), -ENOENT);
    CHECK(strstr(err_text(), "did you mean 'good'?") != NULL);
    teardown();
}

static void *load_again(void *arg)
{
    (void)host_plugin_load(host, arg, NULL, -1);
    return NULL;
}

/* Its topic may be subscribed once. */
TEST(a_plugin_asked_for_twice_at_once_is_there_once)
{
    pthread_t threads[4];
    CHECK(compile("single",
                  "static void on(void *s, const char *t, const void *p, uint32_t n)\n"
                  "{ (void)s, (void)t, (void)p, (void)n; }\n"
                  "static int only(const struct probing_host *h, void **s)\n"
                  "{ int r = init(h, s); return r < 0 ? r : h->subscribe(h, \"single.x\", on); }\n"
                  "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = { BODY,\n"
                  " .abi = PROBING_ABI, .name = \"single\", .init = only };\n"));
    setup(true);
    CHECK_INT(host_plugin_load_all(host, "single, single,single"), 0);
    CHECK_INT(host_plugin_load(host, "single", NULL, -1), -EALREADY);
    for (int i = 0; i < 20; i++) {
        CHECK_INT(host_plugin_stop(host, "single"), 0);
        for (int k = 0; k < 4; k++)
            CHECK_INT(pthread_create(&threads[k], NULL, load_again, (void *)(uintptr_t) "single"),
                      0);
        CHECK_INT(host_plugin_load_all(host, "single,single"), 0);
        for (int k = 0; k < 4; k++)
            (void)pthread_join(threads[k], NULL);
        CHECK_INT(host_plugin_load(host, "single", NULL, -1), -EALREADY);
    }
    teardown();
}

/* A command of a plugin that the core begins with is not unknown before it is there. */
TEST(says_that_a_plugin_is_on_its_way)
{
    static const struct probing_config begins[] = {
        {.name = "plugins", .value = "good", .doc = "", .type = PROBING_STR}, {.name = NULL}};
    const char *word[] = {"nothing", NULL};
    struct client c;

    setup(true);
    client_init(&c);
    CHECK_INT(host_settings_add(host, "probing", begins, sizeof(*begins), NULL, NULL), 0);
    CHECK_INT(host_run(host, 1, word, &c.reply), -EINPROGRESS);
    CHECK(strstr(err_text(), "plugin good is on its way into the process") != NULL);
    CHECK_INT(host_plugin_load(host, "good", NULL, -1), 0);
    CHECK_INT(host_run(host, 1, word, &c.reply), -ENOENT);
    CHECK_INT(host_leave(host, NULL), 0);
    CHECK_INT(host_run(host, 1, word, &c.reply), -ESHUTDOWN);
    client_done(&c);
    teardown();
}

/* "old" comes first and uses "young", which came later. */
TEST(stops_who_uses_before_who_is_used)
{
    CHECK(compile(
        "old", "static int use(void *s) { return h_->extension(h_, \"part/1\") ? 0 : -EAGAIN; }\n"
               "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = { BODY,\n"
               " .abi = PROBING_ABI, .name = \"old\", .start = use };\n"));
    CHECK(compile("young",
                  "static const void *part(void *s, const char *id)\n"
                  "{ return __builtin_strcmp(id, \"part/1\") ? 0 : &n_; }\n"
                  "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = { BODY,\n"
                  " .abi = PROBING_ABI, .name = \"young\", .extension = part };\n"));
    setup(true);
    CHECK_INT(host_plugin_load(host, "old", NULL, -1), -EAGAIN);
    CHECK_INT(host_plugin_load(host, "young", NULL, -1), 0);
    CHECK_INT(host_plugin_load(host, "old", NULL, -1), 0);
    CHECK_INT(host_plugin_stop(host, "young"), -EBUSY);
    CHECK(strstr(err_text(), "is used by plugin 'old': plugin stop old first") != NULL);
    CHECK_INT(host_plugins_stop(host, false), 0);
    teardown();
}

TEST(loads_from_a_descriptor_and_knows_the_same_bytes_again)
{
    char path[160];
    setup(true);
    (void)snprintf(path, sizeof(path), "%s/good.so", folder);
    for (int i = 0; i < 5; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK_INT(host_plugin_load(host, "good", NULL, fd), 0);
        CHECK(fcntl(fd, F_GETFD) >= 0); /* still the caller's */
        (void)close(fd);
        CHECK_INT(host_plugin_stop(host, "good"), 0);
    }
    teardown();
}

TEST(names_plugin_step_and_reason_of_every_failure)
{
#define EXPORTS "PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = { BODY, "
    static const struct {
        const char *name, *body, *says;
    } rows[] = {
        {"no_symbol", "PROBING_EXPORT const int other = 1;\n", "does not export probing_plugin_v1"},
        {"small", EXPORTS ".size = 16, .abi = PROBING_ABI, .name = \"small\" };\n",
         "failed at size"},
        {"major", EXPORTS ".abi = 2u << 16, .name = \"major\" };\n", "built for ABI 2.0"},
        {"minor", EXPORTS ".abi = PROBING_ABI, .min_minor = 9, .name = \"minor\" };\n",
         "needs ABI 1.9"},
        {"named", EXPORTS ".abi = PROBING_ABI, .name = \"else\" };\n", "is plugin 'else'"},
        {"empty", EXPORTS ".abi = PROBING_ABI, .name = \"empty\", .init = 0 };\n",
         "init and destroy"},
        {"driver",
         "__attribute__((constructor)) static void c(void) { init_result = -ENODEV; }\n" EXPORTS
         ".abi = PROBING_ABI, .name = \"driver\" };\n",
         "failed at init: no driver"},
        {"hook",
         "__attribute__((constructor)) static void c(void) { start_result = -ENOTSUP; }\n" EXPORTS
         ".abi = PROBING_ABI, .name = \"hook\" };\n",
         "failed at start: no hook"},
        {"columns",
         "static int bad(const struct probing_host *h, void **s) {\n"
         " static const struct probing_column cols[] = {{.name = \"Not A Name\", .type = 1}};\n"
         " struct probing_table_desc d = {.size = sizeof d, .column_size = sizeof *cols,"
         " .name = \"t\", .doc = \"\", .columns = cols, .n_columns = 1};\n"
         " struct probing_table *t; *s = 0; return h->table(h, &d, &t); }\n" EXPORTS
         ".abi = PROBING_ABI, .name = \"columns\", .init = bad };\n",
         "failed at init: "},
        {"setting",
         "static const struct probing_config c[] = {{.name = \"rate\", .value = \"many\", .doc = "
         "\"\","
         " .type = 1}, {.name = 0}};\n" EXPORTS
         ".abi = PROBING_ABI, .name = \"setting\", .config = c,"
         " .config_size = sizeof *c };\n",
         "setting.rate must be a whole number"},
        {"unresolved",
         "extern int nobody_has_this(void);\nint (*keep)(void) = nobody_has_this;\n" EXPORTS
         ".abi = PROBING_ABI, .name = \"unresolved\" };\n",
         "failed at dlopen"},
    };
    char text[160];
    setup(true);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!CHECK(compile(rows[i].name, rows[i].body)))
            continue;
        CHECK(host_plugin_load(host, rows[i].name, NULL, -1) < 0);
        if (!CHECK(strstr(err_text(), rows[i].says) != NULL) || !strstr(err_text(), rows[i].name))
            printf("# %s says: %s\n", rows[i].name, err_text());
    }
    (void)snprintf(text, sizeof(text), "%s/text.so", folder);
    CHECK_INT(file_write(AT_FDCWD, text, "not an ELF file", 15, 0600), 0);
    CHECK(host_plugin_load(host, "text", NULL, -1) < 0);
    CHECK_INT(host_plugin_load(host, "nowhere", NULL, -1), -ENOENT);
    CHECK_INT(host_plugin_load(host, "nowhere", folder, -1), -EINVAL); /* a directory */
    CHECK_INT(host_plugin_load(host, "../x", NULL, -1), -EINVAL);
    teardown();
}

/* ---- the door ---- */

static int knock(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strnlen(path, sizeof(at.sun_path) - 1));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void say(int door, const char *text, const int *fds, size_t n, char ret[1200])
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 0) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    CHECK(sendmsg(door, &m, MSG_NOSIGNAL) >= 0);
    ssize_t got = recv(door, ret, 1199, 0);
    ret[got > 0 ? got : 0] = '\0';
}

TEST(takes_plugins_at_the_door)
{
    char path[160], file[160], answer[1200];
    (void)snprintf(path, sizeof(path), "%s/door", folder);
    (void)snprintf(file, sizeof(file), "%s/good.so", folder);
    setup(true);
    CHECK_INT(host_upload_socket_open(host, path), 0);
    int door = knock(path), fd = open(file, O_RDONLY | O_CLOEXEC);
    int next =
        open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest free number is after this one */
    (void)close(next);
    const int three[] = {fd, fd, fd};
    say(door, "plugin good", &fd, 1, answer);
    CHECK_STR(answer, "ok");
    say(door, "plugin good", &fd, 1, answer);
    CHECK(strncmp(answer, "error: ", 7) == 0 && strstr(answer, "is loaded"));
    say(door, "plugin good", three, 3, answer);
    CHECK(strstr(answer, "needs one descriptor") != NULL);
    say(door, "plugin good", NULL, 0, answer);
    CHECK(strstr(answer, "needs one descriptor") != NULL);
    say(door, "open sesame", three, 2, answer);
    CHECK(strstr(answer, "accepts only 'plugin NAME'") != NULL);
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(lowest <= next + 1); /* its own end of our connection; none of those sent is left open */
    (void)close(lowest);
    (void)close(fd);
    (void)close(door);
    teardown();
    CHECK(access(path, F_OK) == -1);
}

int main(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/host_test.XXXXXX");
    if (!mkdtemp(folder))
        return test_skip("no directory in /tmp");
    bool cc = there_is_cc();
    if (cc) {
        RUN(loads_runs_stops_and_loads_again);
        RUN(a_plugin_asked_for_twice_at_once_is_there_once);
        RUN(loads_from_a_descriptor_and_knows_the_same_bytes_again);
        RUN(stops_who_uses_before_who_is_used);
        RUN(says_that_a_plugin_is_on_its_way);
        RUN(names_plugin_step_and_reason_of_every_failure);
        RUN(takes_plugins_at_the_door);
        RUN(gives_up_a_start_that_hangs_and_goes_on);
        RUN(gives_up_an_init_that_hangs_and_begins_afresh);
        RUN(a_load_that_was_left_before_start_is_not_gone_on_with_beside_another);
        RUN(leaves_a_stop_that_hangs_behind);
    }
    (void)file_remove_dir(folder);
    return cc ? test_end() : test_end() ? 1 : test_skip("cc cannot compile plugins here");
}
