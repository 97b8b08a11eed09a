/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_call_test.c - scans and commands of plugins that do not return while
 * somebody waits for them.
 *
 * Threads: the test's, and the host's own.  What hangs is let go by the test; until then nothing
 * that it does is waited for.
 */
#include "core/plugin_host/compiled_test.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- calls that somebody waits for ---- */

/* A table and a command that hang until they are let go, and then give what nobody wants any more:
 * rows to the query's memory, text to the client's. */
static void compile_stuck(const char *name)
{
    char body[2048], pipe_path[160];
    (void)snprintf(pipe_path, sizeof(pipe_path), "%s/%s.pipe", folder, name);
    CHECK_INT(mkfifo(pipe_path, 0600), 0);
    (void)snprintf(
        body, sizeof(body),
        "#include <fcntl.h>\n#include <unistd.h>\n"
        "static void hang(void) { int fd = open(\"%s\", O_RDONLY); char c;\n"
        "  (void)!read(fd, &c, 1); close(fd); }\n"
        "static int scan(void *s, struct probing_rows *out) { union probing_cell c = {.i = 1};\n"
        "  hang(); for (int i = 0; i < 100; i++) h_->emit(out, &c, 1); return 0; }\n"
        "static int run(void *s, int argc, const char *const *argv, struct probing_reply *out) {\n"
        "  hang(); h_->cancelled(out); return h_->reply(out, argv[0], 1); }\n"
        "static int begin(const struct probing_host *h, void **s) { struct probing_table *t;\n"
        "  static const struct probing_column c[] = {{.name = \"a\", .type = PROBING_I64, .doc = "
        "\"\"}};\n"
        "  static const struct probing_table_desc d = {.size = sizeof(d), .column_size = "
        "sizeof(c[0]),\n"
        "    .name = \"t\", .doc = \"\", .columns = c, .n_columns = 1, .scan = scan};\n"
        "  static const struct probing_command k = {.size = sizeof(k), .name = \"%s\",\n"
        "    .usage = \"\", .doc = \"\", .run = run};\n"
        "  init(h, s); h->command(h, &k); return h->table(h, &d, &t); }\n"
        "const struct probing_plugin probing_plugin_v1 __attribute__((visibility(\"default\"))) = "
        "{\n"
        "  .size = sizeof(struct probing_plugin), .init = begin, .destroy = destroy,\n"
        "  .abi = PROBING_ABI, .name = \"%s\" };\n",
        pipe_path, name, name);
    CHECK(compile(name, body));
}

static int unwanted_row(struct probing_rows *out, const union probing_cell *cells, uint32_t n)
{
    (void)out, (void)cells, (void)n;
    return -ECANCELED;
}

/* As a query does whose client has gone: what it asked with is freed at once. */
static int scan_unwanted(const char *schema)
{
    struct table *t = tables_find(tables, schema, "t");
    struct probing_rows *rows = calloc(1, sizeof(*rows));
    CHECK(t && rows);
    *rows = (struct probing_rows){.table = t, .row = unwanted_row};
    int rc = t->scan(t->self, rows);
    memset(rows, 0xff, sizeof(*rows));
    free(rows);
    return rc;
}

static void until_it_is_left(void)
{
    struct buf names;
    uint32_t n = 0;
    for (int i = 0; n == 0 && i < 60000; i++) {
        (void)host_watch(host);
        (void)nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        buf_init(&names, 256);
        n = host_plugins_inside(host, &names);
        buf_done(&names);
    }
    CHECK_INT(n, 1);
}

TEST(leaves_a_scan_that_does_not_return)
{
    compile_stuck("stuck_scan");
    setup(true);
    CHECK_INT(host_plugin_load(host, "stuck_scan", NULL, -1), 0);
    CHECK_INT(scan_unwanted("stuck_scan"), -ETIME);
    CHECK(strstr(err_text(), "plugin 'stuck_scan' did not return from its scan (stuck_scan.t)"));
    host_call_limit(host, HUNG_NS);
    until_it_is_left();
    host_call_limit(host, CALL_NS);
    CHECK_INT(host_plugin_load(host, "stuck_scan", NULL, -1), -EBUSY);
    let_go("stuck_scan");
    until_it_came_back();
    CHECK_INT(host_plugin_load(host, "stuck_scan", NULL, -1), 0);
    CHECK_INT(host_plugins_stop(host, false), 0);
    teardown();
}

static void stuck_done(struct probing_reply *r, int status, const char *error)
{
    struct client *c = (struct client *)r;
    c->status = status;
    (void)snprintf(c->why, sizeof(c->why), "%s", error);
    event_raise(&c->done);
}

TEST(leaves_a_command_that_does_not_return)
{
    static const char *const word[] = {"stuck_run"};
    compile_stuck("stuck_run");
    setup(true);
    CHECK_INT(host_plugin_load(host, "stuck_run", NULL, -1), 0);
    struct client *c = calloc(1, sizeof(*c));
    CHECK(c != NULL);
    client_init(c);
    struct host_request r = {
        .argc = 1, .argv = word, .timeout_ns = NS_PER_MS, .reply = &c->reply, .done = stuck_done};
    CHECK_INT(host_submit(host, &r), 0);
    CHECK(event_wait(&c->done, CALL_NS));
    CHECK_INT(c->status, -ETIMEDOUT);
    client_done(c);
    free(c);
    CHECK_INT(host_plugin_stop(host, "stuck_run"), -ETIMEDOUT);
    CHECK(strstr(err_text(), "failed at command (stuck_run): it has not returned"));
    let_go("stuck_run");
    until_it_came_back();
    teardown();
}

/* The memory of the host and the tables is the thread's that is inside; here, nobody's later. */
TEST(leaves_the_core_with_a_scan_inside)
{
    compile_stuck("stuck_end");
    setup(true);
    CHECK_INT(host_plugin_load(host, "stuck_end", NULL, -1), 0);
    CHECK_INT(scan_unwanted("stuck_end"), -ETIME);
    CHECK_INT(host_plugins_stop(host, false), 0);
    CHECK(!host_free(host));
    let_go("stuck_end");
    until_it_came_back();
}

int main(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/host_test.XXXXXX");
    if (!mkdtemp(folder))
        return test_skip("no directory in /tmp");
    bool cc = there_is_cc();
    if (cc) {
        RUN(leaves_a_scan_that_does_not_return);
        RUN(leaves_a_command_that_does_not_return);
        RUN(leaves_the_core_with_a_scan_inside);
    }
    (void)file_remove_dir(folder);
    return cc ? test_end() : test_end() ? 1 : test_skip("cc cannot compile plugins here");
}
