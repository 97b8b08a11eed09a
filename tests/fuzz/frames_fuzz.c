/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/frames_fuzz.c - feed anything to the readers of what relays and who asks them say:
 * frames, their payloads, the flow of a stream, and the line of a member.
 *
 * One thread, no relay.  The inputs come from driver.c; the seed is what a relay sends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/link/frame.c"
#include "cli/link/member.c"
#include "cli/link/merge_protocol.c"
#include "cli/link/stream.c"
#include "tests/fuzz/fuzz.h"

/* One stream, whose window must hold whatever comes. */
static void feed_stream(struct stream *s, struct wire *up, const struct frame *f)
{
    if (f->kind != FRAME_DATA && f->kind != FRAME_CREDIT)
        return;
    int rc = stream_receive(s, f);
    fuzz_must(rc == 0 || rc == -EBADMSG);
    fuzz_must(s->credit <= STREAM_WINDOW && s->granted <= STREAM_WINDOW);
    fuzz_must(s->out[0].size + s->out[1].size <= STREAM_WINDOW);
    fuzz_must(stream_write(s, up) == 0);
    fuzz_must(s->granted <= STREAM_WINDOW);
}

/* A question: what is read of it, written again, is it. */
static void feed_question(const char *data, size_t size)
{
    struct merged_place m = {.end = 0};
    struct merged_question q;
    const char *before = NULL;
    struct buf again;
    uint32_t n = 0;

    if (merged_question_read(data, size, &q) < 0)
        return;
    buf_init(&again, 2 * size + 64);
    merged_ask(&q, &again);
    for (; merged_question_member(&q, &m); n++) {
        fuzz_must(m.statement[0] != '\0' && m.end <= q.members_size);
        struct link_member there;
        if (link_member_from_place(m.place, &there) == 0)
            fuzz_must(there.pid <= INT32_MAX && (!there.alive || there.directory[0] == '/'));
        merged_ask_member(&m, before, &again);
        before = m.statement;
    }
    fuzz_must(n == q.n && again.failed == 0 && again.size <= size);
    buf_done(&again);
}

static void feed_answer(const char *data, size_t size)
{
    struct merged_member m;
    struct merged_record r;
    size_t at = 0;

    for (int rc = 1; rc == 1;) {
        rc = merged_read(data, size, &at, &r);
        if (rc <= 0)
            return;
        fuzz_must(at <= size && r.data + r.size <= data + size);
        if (r.kind == 'M' && merged_read_member(&r, 3, 2, &m) == 0)
            fuzz_must(m.which < 3 && (m.columns < 2 || m.columns == MERGED_NONE) && m.error <= 0 &&
                      strlen(m.why) < r.size);
    }
}

static void feed_payload(const struct frame *f)
{
    struct frame_hello h;
    uint32_t at = 0, n = 0;

    fuzz_must(f->size <= FRAME_MAX && f->channel <= 1 && f->kind < FRAME_KINDS);
    if (frame_hello_read(f, &h) == 0)
        fuzz_must(strlen(h.build) + strlen(h.text) + 6 <= f->size);
    for (const char *text; (text = frame_text(f, &at)) != NULL; n++)
        fuzz_must(text >= f->data && text + strlen(text) < f->data + f->size);
    fuzz_must(at <= f->size && n <= f->size);
    if (f->kind == FRAME_MERGE)
        feed_question(f->data, f->size);
    if (f->kind == FRAME_DATA)
        feed_answer(f->data, f->size);
}

static void feed_wire(const char *data, size_t size)
{
    struct wire w = {.in = -1, .out = -1}, up = {.in = -1, .out = -1};
    struct stream s;
    struct frame f;
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

    buf_init(&w.input, size + 1);
    buf_init(&up.output, WIRE_OUT_MAX);
    stream_begin(&s, 0, 1);
    stream_take(&s, 0, -1, nothing); /* channel 1 has no descriptor: what comes is not kept */
    (void)buf_add(&w.input, data, size);
    for (int rc = 1; rc == 1;) {
        rc = wire_next(&w, &f);
        fuzz_must(rc == 1 || rc == 0 || rc == -EBADMSG);
        fuzz_must(w.used <= w.input.size);
        if (rc == 1) {
            feed_payload(&f);
            feed_stream(&s, &up, &f);
        }
    }
    stream_end(&s);
    wire_end(&w);
    wire_end(&up);
}

static void feed_member(const char *line, size_t size)
{
    const struct link_member *m = NULL;

    if (link_member_read(7, line, size, &m) == 0) {
        fuzz_must(m->host == 7 && m->what[0] != '\0' && m->what[0] != '-');
        fuzz_must(strpbrk(m->why, "\n\033") == NULL);
    }
    link_members_forget();
}

static void seed_frame(struct buf *b, enum frame_kind kind, const void *data, size_t size)
{
    char head[FRAME_HEAD] = {0};

    store_le32(head, (uint32_t)size);
    head[4] = (char)kind;
    store_le32(head + 12, 1);
    (void)buf_add(b, head, sizeof(head));
    (void)buf_add(b, data, size);
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const char member[] =
        "{\"what\": \"4242\", \"directory\": \"/tmp/probing-0/4242-99\", \"pid\": 4242, "
        "\"start_time\": 99, \"rank\": 3, \"role\": \"default\", \"why\": \"\", \"state\": "
        "\"alive\"}\n";
    const struct merged_question q = {.timeout_ns = 1, .merge = "select 1", .merge_size = 9};
    const struct merged_place place = {
        .host = 7, .place = "1 2 /x", .statement = "select 2", .about = "\1more", .about_size = 5};
    const struct merged_member one = {.which = 2, .error = -5, .why = "it is dead"};
    struct buf b, hello, question, answer;

    buf_init(&question, 4096);
    buf_init(&answer, 4096);
    merged_ask(&q, &question);
    merged_ask_member(&place, NULL, &question);
    merged_ask_member(&place, place.statement, &question);
    merged_write(&answer, 'C', "columns", 7);
    merged_write_member(&answer, &one);
    merged_write(&answer, 'R', "rows", 4);
    merged_write(&answer, 'E', NULL, 0);
    buf_init(&b, max);
    buf_init(&hello, 256);
    frame_hello_write("0.1.0", "node1", &hello);
    (void)buf_adds(&b, "Welcome!\n" FRAME_MAGIC);
    seed_frame(&b, FRAME_HELLO, hello.data, hello.size);
    seed_frame(&b, FRAME_DATA, member, sizeof(member) - 1);
    seed_frame(&b, FRAME_CREDIT, "\0\1\0\0", 4);
    seed_frame(&b, FRAME_CLOSE, "\0\0\0\0\0\0\0\0gone", 13);
    seed_frame(&b, FRAME_PONG, "1234567812345678", 16);
    seed_frame(&b, FRAME_MERGE, question.data, question.size);
    seed_frame(&b, FRAME_DATA, answer.data, answer.size);
    buf_done(&question);
    buf_done(&answer);
    size_t size = b.size;
    memcpy(data, b.data, size);
    buf_done(&b);
    buf_done(&hello);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *line = size > 0 ? memchr(text, '{', size) : NULL;

    feed_wire(text, size);
    if (line != NULL) {
        const char *end = memchr(line, '\n', size - (size_t)(line - text));
        feed_member(line, end != NULL ? (size_t)(end - line) : size - (size_t)(line - text));
    }
    return 0;
}
