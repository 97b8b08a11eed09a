/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/flame_test.c - profiles made by hand, and the files that come of them.
 */
#include <stdio.h>
#include <string.h>

#include "core/flame/flame.h"
#include "tests/test.h"

static struct flame flame;
static struct buf out;

/* A stack of frames, "innermost|next|...": a native one has its module behind an '@', a Python one
 * has nothing, a remark begins with a bracket. */
static void add(int64_t id, const char *frames, int64_t value)
{
    char text[512], *save = NULL;
    (void)snprintf(text, sizeof(text), "%s", frames);
    CHECK_INT(flame_add_stack(&flame, id), 0);
    for (char *at = strtok_r(text, "|", &save); at; at = strtok_r(NULL, "|", &save)) {
        char *module = strchr(at, '@');
        if (module)
            *module++ = '\0';
        bool python = !module && at[0] != '[';
        const struct flame_frame frame = {.func = at,
                                          .file = python ? "train.py" : "",
                                          .module = module ? module : "",
                                          .python = python};
        CHECK_INT(flame_add_frame(&flame, &frame), 0);
    }
    const struct flame_sample s = {.thread_name = "", .value = value, .count = 1};
    CHECK_INT(flame_add_sample(&flame, id, &s), 0);
}

static void begin(void)
{
    flame_init(&flame, (size_t)1 << 26);
    buf_init(&out, (size_t)1 << 26);
}

/* The file, in `out`. */
static const char *write(int (*make)(const struct flame_tree *tree, struct buf *out))
{
    struct flame_tree tree;
    buf_reset(&out);
    CHECK_INT(flame_join(&flame), 0);
    CHECK_INT(flame_tree_new(&flame, &tree), 0);
    flame_tree_sort(&tree);
    CHECK_INT(make(&tree, &out), 0);
    flame_tree_done(&tree);
    return buf_text(&out);
}

static void end(void)
{
    flame_done(&flame);
    buf_done(&out);
}

/* A stack without its native frames gets those that whole ones have there, so there is one tower;
 * where they are not known it stays as it is. */
TEST(broken_stacks_stand_in_the_tower_of_the_whole)
{
    begin();
    add(1, "addmm@t.so|forward|call@t.so|step|main", 70);
    add(2, "relu@t.so|forward|other@t.so|step|main", 20);
    add(3, "sgemm@mkl.so|[native frames not read]|forward|step|main", 5); /* between is missing */
    add(4, "forward|step|main|[native frames not read]", 4);
    add(5, "new|step|main|[native frames not read]", 3); /* no whole one leads to it */
    CHECK_STR(write(flame_folded),
              "main (train.py);step (train.py);call (t.so);forward (train.py) 4\n"
              "main (train.py);step (train.py);call (t.so);forward (train.py);addmm (t.so) 70\n"
              "main (train.py);step (train.py);call (t.so);forward (train.py);"
              "[native frames not read];sgemm (mkl.so) 5\n"
              "main (train.py);step (train.py);other (t.so);forward (train.py);relu (t.so) 20\n"
              "main (train.py);step (train.py);new (train.py) 3\n");
    CHECK_INT(flame.total, 102);
    end();
}

/* A living process gives its samples first, and then the stacks, of which some are gone. */
TEST(samples_find_stacks_that_come_after_them)
{
    const struct flame_sample s = {.thread_name = "", .value = 10, .count = 2};
    char lost[FLAME_LOST_BYTES];
    begin();
    for (int64_t id = 1; id < 4; id++)
        CHECK_INT(flame_add_sample(&flame, id, &s), 0);
    add(2, "forward|main", 5);
    add(3, "backward|main", 5);
    add(4, "unseen|main", 0);
    CHECK_STR(write(flame_folded), "main (train.py);backward (train.py) 15\n"
                                   "main (train.py);forward (train.py) 15\n");
    CHECK_INT(flame.total, 30);
    CHECK_INT(flame.n_sampled, 2);
    flame_tell_lost(&flame, lost, sizeof(lost));
    CHECK_STR(lost, "2 of 8 samples are left out: their stacks are not there any more, as "
                    "retention takes the oldest away");
    end();
}

TEST(whole_stacks_stay_as_they_are)
{
    begin();
    add(1, "forward|call@t.so|step|main", 70);
    add(2, "forward|step|main", 30); /* called from Python itself */
    CHECK_STR(write(flame_folded), "main (train.py);step (train.py);call (t.so);forward (train.py) "
                                   "70\nmain (train.py);step (train.py);forward (train.py) 30\n");
    end();
}

/* Frames of ours between the program's are left out, and what they call is the program's; if ours
 * run, the flame says so. */
TEST(our_own_frames_are_left_out)
{
    begin();
    add(1, "forward|[0x68]@/memfd:probing-plugin-torch (deleted)|step|main", 70);
    add(2, "forward|step|main", 20);
    add(3, "[0x10]@/memfd:probing (deleted)|[0x20]@/opt/libprobing.so|step|main", 10);
    add(4, "forward|call@/usr/lib/probing/plugins/torch.so|step|main", 5);
    add(5, "forward|call@/opt/plugins/mine.so|step|main", 7);
    CHECK_STR(write(flame_folded), "main (train.py);step (train.py);forward (train.py) 95\n"
                                   "main (train.py);step (train.py);[probing] 10\n"
                                   "main (train.py);step (train.py);call (mine.so);forward "
                                   "(train.py) 7\n");
    end();
}

static bool has(const char *text)
{
    return strstr(buf_text(&out), text) != NULL;
}

TEST(a_picture_is_as_wide_as_asked)
{
    begin();
    add(1, "a|main", 1);
    (void)write(flame_svg);
    CHECK(has("width=\"1200\"") && has("viewBox=\"0 0 1200 "));
    flame.width = 700;
    (void)write(flame_svg);
    CHECK(has("width=\"700\"") && has("viewBox=\"0 0 700 ") && has("width=\"700.00\""));
    CHECK(!has("1200"));
    end();
}

TEST(what_is_no_code_is_grey)
{
    begin();
    add(1, "[unknown]|main", 1);
    (void)write(flame_svg);
    const char *box = strstr(buf_text(&out), "<title>[unknown]");
    CHECK(box != NULL && strncmp(strstr(box, "fill="), "fill=\"rgb(176,176,176)\"", 23) == 0);
    box = strstr(buf_text(&out), "<title>main");
    CHECK(box != NULL && strncmp(strstr(box, "fill="), "fill=\"rgb(176", 13) != 0);
    end();
}

TEST(ways_of_modules_keep_their_end)
{
    begin();
    flame.width = 210; /* 30 letters */
    add(1, "transformer.layers.0.attention.output.dense@m", 1);
    (void)write(flame_svg);
    CHECK(has(">transformer.layers.0.attention<"));
    flame.tails = true;
    (void)write(flame_svg);
    CHECK(has(">..0.attention.output.dense (m)<") && has("data-tails"));
    end();
    begin();
    flame.width = 70;
    flame.tails = true;
    add(1,
        "aaaaaaaa\xc3\xa4"
        "123@m",
        1); /* the cut would halve a letter */
    (void)write(flame_svg);
    CHECK(has(">..123 (m)<"));
    end();
}

TEST(the_title_names_the_program_and_no_secret)
{
    static const struct {
        const char *command, *title;
    } cases[] = {
        {"", "42: cpu time"},
        {"/usr/bin/python3 -u train.py --token s3cret", "python3 (42): cpu time"},
        {"/usr/bin/python3 src/train.py --token s3cret", "python3 train.py (42): cpu time"},
        {"python3 -m package.train --x", "python3 -m package.train (42): cpu time"},
        {"serve s3cret", "serve (42): cpu time"},
        {"python3 -m", "python3 (42): cpu time"},
    };
    char title[300];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        flame_title(title, sizeof(title), cases[i].command, "42", "cpu time");
        CHECK_STR(title, cases[i].title);
    }
    flame_title(title, 8, "python3 x.py", "42", "cpu time");
    CHECK_STR(title, "python3");
}

/* The frames that one stack lacks are not put into another. */
TEST(a_gap_is_of_its_own_stack)
{
    begin();
    add(1, "down|[7 frames left out]|work", 10);
    add(2, "down|" FLAME_BROKEN "|[9 frames left out]|work", 20);
    add(3, "down|" FLAME_BROKEN "|work", 30);
    CHECK_STR(write(flame_folded),
              "work (train.py);" FLAME_BROKEN ";down (train.py) 30\n"
              "work (train.py);[9 frames left out];" FLAME_BROKEN ";down (train.py) 20\n"
              "work (train.py);[7 frames left out];down (train.py) 10\n");
    end();
}

static uint32_t times(const char *text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

/* A recursion of thousands is whole in each file. */
TEST(no_stack_is_too_deep)
{
    const uint32_t depth = 5000;
    const struct flame_sample s = {.thread_name = "", .value = 70000000, .count = 1};
    begin();
    CHECK_INT(flame_add_stack(&flame, 1), 0);
    for (uint32_t i = 0; i < depth; i++) {
        struct flame_frame frame = {.func = i % 3 ? "down" : "across",
                                    .file = "train.py",
                                    .module = "",
                                    .line = (int32_t)(i % 3),
                                    .python = true};
        CHECK_INT(flame_add_frame(&flame, &frame), 0);
    }
    CHECK_INT(flame.n_frames, 3); /* each is kept once */
    CHECK_INT(flame_add_sample(&flame, 1, &s), 0);
    CHECK_INT(times(write(flame_folded), " (train.py)"), depth);
    CHECK_INT(times(write(flame_svg), "<title>"), depth + 1);
    CHECK(strstr(write(flame_html), "70000000,1,5000,0,70000000,1]") != NULL);
    buf_reset(&out);
    CHECK_INT(flame_chrome(&flame, &out), 0);
    CHECK_INT(times(buf_text(&out), "\"ph\":\"X\""), depth);
    end();
}

int main(void)
{
    RUN(broken_stacks_stand_in_the_tower_of_the_whole);
    RUN(samples_find_stacks_that_come_after_them);
    RUN(whole_stacks_stay_as_they_are);
    RUN(our_own_frames_are_left_out);
    RUN(a_picture_is_as_wide_as_asked);
    RUN(what_is_no_code_is_grey);
    RUN(ways_of_modules_keep_their_end);
    RUN(the_title_names_the_program_and_no_secret);
    RUN(a_gap_is_of_its_own_stack);
    RUN(no_stack_is_too_deep);
    return test_end();
}
