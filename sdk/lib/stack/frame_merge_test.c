/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/stack/frame_merge_test.c - stacks written by hand, as interpreters of all kinds make
 * them, and the one that a reader wants to see.
 *
 * A stack is a text, innermost frame first.  Native: "E" the eval function, "p" plumbing, "b" how a
 * program begins, "g" where a greenlet begins, another letter (x, y ...) a function by that name.
 * Python: a capital letter is a frame, "." behind it makes it an entry, "|" is a shim.  Marks: for
 * each shim the native frame (from 0) that it lies in, "-" for one further out.
 */
#include "sdk/lib/stack/frame_merge.h"

#include "tests/test.h"

#define SP(i) (0x7000u + 0x100u * (uint64_t)(i))

struct stacks {
    const char *native;
    struct frame_python python[32];
    char names[32];
};

static int kind(void *arg, uint32_t i)
{
    switch (((struct stacks *)arg)->native[i]) {
    case 'E':
        return FRAME_EVAL;
    case 'p':
        return FRAME_PLUMBING;
    case 'b':
        return FRAME_BEGIN;
    case 'g':
        return FRAME_BASE;
    default:
        return FRAME_NATIVE;
    }
}

static uint64_t sp(void *arg, uint32_t i)
{
    (void)arg;
    return SP(i);
}

static struct frame_python python(void *arg, uint32_t i)
{
    return ((struct stacks *)arg)->python[i];
}

static uint32_t read_python(const char *text, const char *marks, struct stacks *ret)
{
    uint32_t n = 0;
    for (; *text; text++) {
        if (*text == '.') {
            ret->python[n - 1].entry = true;
            continue;
        }
        ret->names[n] = *text;
        ret->python[n] = (struct frame_python){.mark = 0};
        if (*text == '|') {
            ret->python[n].shim = ret->python[n].entry = true;
            ret->python[n].mark = SP(*marks == '-' ? 40 : *marks - '0') + 0x40;
            marks += *marks != '\0';
        }
        n++;
    }
    return n;
}

enum { ALL = 0, NATIVE_CUT = 1, PYTHON_CUT = 2, EXACT = 4 };

/* "xAyB", or "?" and the Python frames where both sides do not agree. */
static const char *merged(const char *native, const char *frames, const char *marks, int how)
{
    static char text[128];
    struct stacks s = {.native = native};
    struct frame_merge m = {.arg = &s,
                            .kind = kind,
                            .sp = sp,
                            .python = python,
                            .n_native = (uint32_t)strlen(native),
                            .native_whole = !(how & NATIVE_CUT),
                            .python_whole = !(how & PYTHON_CUT),
                            .exact = how & EXACT};
    size_t n = 0;
    uint32_t i;
    m.n_python = read_python(frames, marks, &s);
    frame_merge_begin(&m);
    if (!m.agree)
        text[n++] = '?';
    for (enum frame_side side; (side = frame_merge_next(&m, &i)) != FRAME_END && n < 120;)
        text[n++] = side == FRAME_OF_NATIVE ? native[i] : s.names[i];
    text[n] = '\0';
    return text;
}

#define MERGED(native, frames, marks, how, wanted) \
    CHECK_STR(merged(native, frames, marks, how), wanted)

/* CPython 3.8 to 3.11: every frame tells whether it is an entry, where that is nobody knows. */
TEST(by_count)
{
    MERGED("xEpEb", "A.B.", "", ALL, "xAB");          /* up to 3.10 each has its own */
    MERGED("xEpyEb", "A.B.", "", ALL, "xAyB");        /* a C function calls back */
    MERGED("xEbb", "ABC.", "", ALL, "xABC");          /* 3.11: one eval, three frames */
    MERGED("xEpyEpb", "ABC.D.", "", ALL, "xABCyD");   /* and a callback below */
    MERGED("xEpzEpyEb", "A.B.C.", "", ALL, "xAzByC"); /* generator: gen_send_ex is plumbing */
    MERGED("xyz", "", "", ALL, "xyz");                /* a native thread */
    MERGED("xbb", "", "", ALL, "xbb");                /* that may begin anyhow */
    MERGED("xEyb", "A.", "", ALL, "xAy");             /* embedded: y called Python, b began y */
    MERGED("xEbyb", "A.", "", ALL, "xAy");
}

TEST(half_way_in)
{
    MERGED("EpEb", "A.", "", ALL, "A");    /* the inner one has no frame yet, or none any more */
    MERGED("pEpEb", "A.", "", ALL, "A");   /* it checks the recursion first */
    MERGED("EpyEb", "A.", "", ALL, "yA");  /* a callback begins: A called y, not y A */
    MERGED("EpEb", "A.", "", EXACT, "?A"); /* before 3.11 a sub-interpreter may hide a frame */
    MERGED("xxEpEb", "A.", "", ALL, "?A"); /* deeper than an eval function is that begins */
    MERGED("EpEpEb", "A.", "", ALL, "?A"); /* two cannot be half way in */
    MERGED("Eb", "A.B.", "", ALL, "?AB");  /* a frame that nobody runs */
    MERGED("Eb", "", "", ALL, "b");
}

TEST(missing_parts)
{
    MERGED("xEpyE", "A.B.C.", "", NATIVE_CUT, "xAyBC");
    MERGED("x", "A.B.", "", NATIVE_CUT, "xAB");
    MERGED("xEpE", "A.", "", NATIVE_CUT, "?A");
    MERGED("xEpyEpzEb", "A.B.", "", PYTHON_CUT, "xAyBz");
}

TEST(greenlets)
{
    MERGED("xEpyEgEpb", "A.B.", "", ALL, "xAyB");        /* the hub's frames are not its callers */
    MERGED("xEpyEgEpb", "A.B.", "", NATIVE_CUT, "xAyB"); /* whatever is lost behind that */
    MERGED("xEgEpb", "A.B.", "", ALL, "?AB");
    MERGED("xEpygE", "A|", "1", ALL, "xAy");
}

/* 3.12 and later: the shim lies in the eval function's frame. */
TEST(by_mark)
{
    MERGED("xEpyEb", "AB|CD|", "14", ALL, "xAByCD");
    MERGED("xzpyzb", "AB|CD|", "14", ALL, "xAByCD");   /* stripped: the eval function has no name */
    MERGED("xEEpyEEb", "AB|CD|", "25", ALL, "xAByCD"); /* the compiler has split it */
    MERGED("EpyEb", "AB|", "3", ALL, "yAB");           /* half way in */
    MERGED("xxEpyEb", "AB|", "5", ALL, "xxyAB");       /* however deep: the mark is certain */
    MERGED("xEpyEpzE", "A|B|C|D|", "147-", NATIVE_CUT, "xAyBzCD");
    MERGED("EpyEpzE", "A|B|", "3-", NATIVE_CUT, "yAzB"); /* by count A would be called by y */
    MERGED("xEpyEpzEb", "A|B|", "14", PYTHON_CUT, "xAyBz");
    MERGED("EpyE", "A|B|C|", "3--", NATIVE_CUT, "yABC"); /* and by count nobody would notice */
    MERGED("x", "A|B|", "--", NATIVE_CUT, "xAB");
    MERGED("xEpyEb", "A|B|", "41", ALL, "xAyB"); /* not in order: what is known is the count */
    MERGED("xEpyEb", "A|B|C|", "141", ALL, "?ABC");
    MERGED("xEpyEb", "A||", "14", ALL, "xAy"); /* a call that has only its mark yet */
    MERGED("xEpyEb", "|A|", "14", ALL, "xyA");
}

/* Other frames stand between: compiled Python (Cython) has native frames only, perf's trampolines
 * (3.12 on) lie around each eval function, and a hook of ours is a C function that was called. */
TEST(other_frames)
{
    MERGED("xEcpcEb", "A.B.", "", ALL, "xAccB");
    MERGED("xEcpcEb", "A|B|", "15", ALL, "xAccB");
    MERGED("cccb", "", "", ALL, "cccb");
    MERGED("xEtpEtb", "A|B|", "14", ALL, "xAtBt");
    MERGED("xEtpEtb", "A.B.", "", ALL, "xAtBt");
    MERGED("hpEb", "A.", "", ALL, "hA");
    MERGED("xEpEpEb", "A|B|C|", "135", ALL, "xABC"); /* a coroutine sent to, two that it awaits */
    MERGED("xEpEb", "ABC|D|", "13", ALL, "xABCD");   /* those that await are inlined: 3.12 */
    MERGED("xyzb", "A|", "-", ALL, "?A");            /* a Python frame of nobody's */
}

int main(void)
{
    RUN(by_count);
    RUN(half_way_in);
    RUN(missing_parts);
    RUN(greenlets);
    RUN(by_mark);
    RUN(other_frames);
    return test_end();
}
