# SPDX-License-Identifier: Apache-2.0
"""Plugins of others that hang or are late: what the core does with them, and after them."""
import subprocess

import pytest
from life import fds, gone, our_threads, prepared, state_of
from world import CLI, LIMIT, threads_of, wait_for

HANGING = r"""
#include <probing/plugin.h>
#include <unistd.h>
static int self_;
static int init(const struct probing_host *h, void **s) { (void)h; *s = &self_; return 0; }
static int hang(void *s) { (void)s; for (;;) pause(); return 0; }
static void destroy(void *s) { (void)s; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "hanging",
    .version = "1", .doc = "hangs", .init = init, .destroy = destroy, .%s = hang };
"""


@pytest.mark.parametrize("step", ["start", "stop"])
def test_eject_with_a_plugin_that_hangs(world, step):
    """Others are served meanwhile; the plugin is given up; eject leaves and says so."""
    target = prepared(world)
    before = state_of(target.pid)
    target.inject("-D", "probing.plugin_timeout=1s")
    plugin = world.plugin("hanging", HANGING % step)
    load = subprocess.Popen([str(CLI), "-t", str(target.pid), "plugin", "load", str(plugin)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=world.env)
    if step == "start":
        wait_for(lambda: "hanging" in target.probing("plugin", "list").stdout, "the plugin")
        assert target.rows("select 1") == [[1]]
        _, why = load.communicate(timeout=LIMIT)
        assert load.returncode != 0 and "has not returned" in why, why
        assert target.probing("config", "set", "probing.log_level", "debug").returncode == 0
        assert target.probing("eval", "print(2)").stdout == "2\n"
    else:
        assert load.wait(LIMIT) == 0
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    assert "a thread is still inside plugin hanging" in done.stdout
    wait_for(lambda: not our_threads(target.pid), "our threads to end")
    wait_for(lambda: fds(target.pid) == before["fds"], "the same descriptors")
    target.inject()
    assert target.rows("select 1") == [[1]]
    again = target.probing("plugin", "load", str(plugin))
    assert again.returncode != 0 and "has not returned" in again.stderr
    assert target.alive()


def test_a_core_that_has_just_begun_is_waited_for(world):
    """It was said not to be there, and to be entered with inject, while its plugins started."""
    target = prepared(world)
    world.plugin("slow", HANGING.replace("for (;;) pause()", "sleep(1)").replace(
        '"hanging"', '"slow"') % "start")
    inject = subprocess.Popen(
        [str(CLI), "-t", str(target.pid), "inject", "-D", "probing.plugin_path=%s" % world.tmp,
         "-D", "probing.plugins=slow"], env=world.env)
    wait_for(lambda: "probing/load" in threads_of(target.pid) or inject.poll() is not None,
             "the plugins to be loaded")
    assert target.rows("select state from probing.plugins") == [["running"]]
    assert inject.wait(LIMIT) == 0


HANGING_IN = r"""
#include <probing/plugin.h>
#include <unistd.h>
static const struct probing_host *host;
static _Atomic int go_on;
static void wait_here(void) { while (!go_on) usleep(10000); }
static void on_event(void *self, const char *topic, const void *payload, uint32_t n)
{ (void)self; (void)topic; (void)payload; (void)n; wait_here(); }
static void on_tick(void *self, uint64_t now) { (void)self; (void)now; wait_here(); }
static int publish(void *self, int argc, const char *const *argv, struct probing_reply *out)
{ (void)self; (void)argc; (void)argv; (void)out; return host->publish(host, "hanging.x", "", 0); }
static int release(void *self, int argc, const char *const *argv, struct probing_reply *out)
{ (void)self; (void)argc; (void)argv; (void)out; go_on = 1; return 0; }
static int init(const struct probing_host *h, void **self)
{
    static const struct probing_command commands[] = {
        {.size = sizeof(commands[0]), .name = "publish_it", .usage = "", .doc = "p",
         .run = publish},
        {.size = sizeof(commands[0]), .name = "release_it", .usage = "", .doc = "r",
         .run = release}};
    host = h;
    *self = &host;
    int r = h->command(h, &commands[0]);
    if (r >= 0) r = h->command(h, &commands[1]);
    if (r >= 0) r = %s;
    return r;
}
static void destroy(void *self) { (void)self; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "hanging_in",
    .version = "1", .doc = "hangs", .init = init, .destroy = destroy };
"""


def test_an_event_handler_that_hangs(world):
    """It is named and given up; others' events and commands, settings and eject go on."""
    target = prepared(world)
    before = state_of(target.pid)
    target.inject("-D", "probing.plugin_timeout=500ms")
    plugin = world.plugin("hanging_in", HANGING_IN % 'h->subscribe(h, "hanging.*", on_event)')
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    assert target.probing("publish_it").returncode == 0
    state = "select state, reason from probing.plugins where name = 'hanging_in'"
    wait_for(lambda: target.rows(state)[0][0] == "failed", "the plugin to be given up")
    assert "its handler has not returned after 0.5 s" in target.rows(state)[0][1]
    assert target.rows("select count(*) from probing.log where text like '%hanging_in failed at "
                       "event%'") == [[1]]
    assert target.probing("config", "set", "probing.log_level", "debug").returncode == 0
    assert target.probing("eval", "print(2)").stdout == "2\n"
    done = target.probing("eject")
    assert done.returncode == 0 and "is still inside plugin hanging_in" in done.stdout, done.stderr
    wait_for(lambda: not our_threads(target.pid), "our threads to end")
    wait_for(lambda: fds(target.pid) == before["fds"], "the same descriptors")
    target.inject()
    assert target.rows("select 1") == [[1]] and target.alive()


HEARS = r"""
#include <probing/ext/draft/note.h>
#include <probing/ext/draft/rows.h>
static const struct probing_host *host;
static int scan(void *self, struct probing_rows *out)
{
    const struct probing_rows_1 *rows = host->extension(host, PROBING_ROWS_1);
    union probing_cell cells[3];
    (void)self;
    for (uint32_t c = 0; c < 3; c++)
        cells[c].i = rows->wanted(out, 0) + 10 * rows->wanted(out, 1) + 100 * rows->wanted(out, 2) +
                     1000 * rows->wanted(out, 3);
    return host->emit(out, cells, 3);
}
static int init(const struct probing_host *h, void **self)
{
    static const struct probing_column columns[] = {
        {.name = "a", .type = PROBING_I64, .doc = ""},
        {.name = "b", .type = PROBING_I64, .doc = ""},
        {.name = "c", .type = PROBING_I64, .doc = ""}};
    struct probing_table_desc d = {.size = sizeof(d), .column_size = sizeof(columns[0]),
        .name = "hears", .doc = "", .columns = columns, .n_columns = 3, .scan = scan};
    struct probing_table *t;
    host = h;
    *self = &host;
    return h->table(h, &d, &t);
}
static int start(void *self)
{
    const struct probing_note_1 *note = host->extension(host, PROBING_NOTE_1);
    (void)self;
    note->set(host, "half of it");
    return 0;
}
static void destroy(void *self) { (void)self; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "hears",
    .version = "1", .doc = "hears", .init = init, .start = start, .destroy = destroy };
"""


def test_a_plugin_notes_and_hears_which_columns_are_asked_for(world):
    target = prepared(world)
    target.inject()
    plugin = world.plugin("hears", HEARS)
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    assert target.rows("select state, reason from probing.plugins where name = 'hears'") == \
        [["running", "half of it"]]
    table = target.rows("select table_schema || '.' || table_name from information_schema.tables "
                        "where table_name = 'hears'")[0][0]
    assert target.rows("select a from %s" % table) == [[1]]
    assert target.rows("select c, a from %s where b > 0" % table) == [[111, 111]]
    assert target.rows("select * from %s" % table) == [[111, 111, 111]]
    assert target.rows("select max(c) from %s" % table) == [[100]]
    assert target.rows("select count(*) from %s" % table) == [[1]]


@pytest.mark.parametrize("leave", [False, True])
def test_an_every_function_that_is_late(world, leave):
    """It is named; everything else goes on; eject leaves, and says so if it has not returned."""
    target = prepared(world)
    before = state_of(target.pid)
    target.inject("-D", "probing.plugin_timeout=500ms")
    plugin = world.plugin("hanging_in", HANGING_IN % "h->every(h, 50000000, on_tick)")
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    state = "select state, reason from probing.plugins where name = 'hanging_in'"
    wait_for(lambda: "late" in (target.rows(state)[0][1] or ""), "the plugin to be named")
    assert target.probing("publish_it").returncode == 0
    if leave:
        done = target.probing("eject")
        assert done.returncode == 0 and "inside plugin hanging_in" in done.stdout, done.stderr
        wait_for(lambda: not our_threads(target.pid), "our threads to end")
        wait_for(lambda: fds(target.pid) == before["fds"], "the same descriptors")
        target.inject()
        assert target.rows("select 1") == [[1]] and target.alive()
        return
    assert target.probing("release_it").returncode == 0
    wait_for(lambda: not target.rows(state)[0][1], "its name to be cleared")
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    gone(target, before)
