/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/stack/stack_format.c - the three forms of a stack: text for people, JSON, rows for
 * SQL.
 *
 * The owner's thread only.  Names come from the user's program and are shown as they are, except
 * that control characters cannot reach a terminal.  No stream of stdio's: exit() takes the buffers
 * of all there are away, also from a thread that is writing.
 */
#include "stack/stack_format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"
#include "lib/json_text.h"

#define FUNC_WIDTH 22 /* columns of a function's name before the place begins to shift */
#define NO_LOCALS "locals could not be read: the frame was running"
#define TEXT_BYTES ((size_t)1 << 28) /* of a thread's stack, with the locals of all frames */
#define ALIKE 2u                     /* repetitions of a frame that are shown, beside it */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_clean(struct buf *b, const char *text)
{
    for (; *text; text++)
        (void)buf_addc(b, (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text);
}

static size_t columns_of(const char *utf8)
{
    size_t n = 0;
    for (; *utf8; utf8++)
        n += (*utf8 & 0xc0) != 0x80;
    return n;
}

static void text_thread(struct buf *b, const struct sink_thread *t)
{
    (void)buf_addf(b, "Thread %d \"", t->tid);
    put_clean(b, t->name);
    (void)buf_addf(b, "\" (%s%s%s%s)\n", t->state, t->syscall ? " in " : "",
                   t->syscall ? t->syscall : "", t->gil ? ", holds the GIL" : "");
}

static void text_place(struct buf *b, const struct sink_frame *frame)
{
    if (frame->python) {
        put_clean(b, frame->file);
        if (frame->line > 0)
            (void)buf_addf(b, ":%d", frame->line);
        else
            (void)buf_adds(b, ":?");
    } else if (frame->module[0]) {
        (void)buf_addc(b, '(');
        put_clean(b, last_part(frame->module));
        (void)buf_addf(b, "+0x%llx)", (unsigned long long)frame->module_offset);
    } else {
        (void)buf_addf(b, "(0x%llx)", (unsigned long long)frame->ip);
    }
}

static void text_frame(struct buf *b, const struct sink_frame *frame)
{
    (void)buf_addf(b, "%3u ", frame->depth);
    put_clean(b, frame->func);
    for (size_t n = columns_of(frame->func); frame->python && n < FUNC_WIDTH; n++)
        (void)buf_addc(b, ' ');
    (void)buf_addc(b, ' ');
    text_place(b, frame);
    (void)buf_addc(b, '\n');
    if (frame->locals && !frame->locals[0])
        (void)buf_addf(b, "      (%s)\n", NO_LOCALS);
    else if (frame->locals && strcmp(frame->locals, "{}") != 0)
        (void)buf_addf(b, "      %s\n", frame->locals);
}

/* ---- into memory ---- */

static int memory_thread(struct sink *sink, const struct sink_thread *t)
{
    struct sink_text *s = (struct sink_text *)sink;
    text_thread(&s->text, t);
    return 0;
}

static int memory_frame(struct sink *sink, const struct sink_frame *f)
{
    struct sink_text *s = (struct sink_text *)sink;
    /* what the thread does is best said by its innermost Python frame */
    if (f->python && !s->first[0])
        (void)snprintf(s->first, sizeof(s->first), "%.100s (%.180s:%d)", f->func, f->file, f->line);
    if (f->depth < s->limit)
        text_frame(&s->text, f);
    else if (f->depth == s->limit)
        (void)buf_adds(&s->text, "    ...\n");
    return 0;
}

static void memory_note(struct sink *sink, const char *text)
{
    struct sink_text *s = (struct sink_text *)sink;
    (void)buf_addf(&s->text, "    (%s)\n", text);
}

static int memory_end(struct sink *sink)
{
    (void)sink;
    return 0;
}

void sink_text_begin(struct sink_text *s, uint32_t limit)
{
    *s = (struct sink_text){.sink = {memory_thread, memory_frame, memory_note, memory_end},
                            .limit = limit};
    buf_init(&s->text, TEXT_BYTES);
}

char *sink_text_end(struct sink_text *s)
{
    char *text = buf_steal(&s->text, NULL);
    buf_done(&s->text);
    return text;
}

/* ---- to a client ---- */

static void json_string(struct buf *b, const char *text)
{
    (void)buf_addc(b, '"');
    for (size_t n = strlen(text); n > 0;) {
        char letter[JSON_LETTER_BYTES];
        size_t size, took = json_letter(text, n, letter, &size);
        (void)buf_add(b, letter, size);
        text += took;
        n -= took;
    }
    (void)buf_addc(b, '"');
}

static void json_frame(struct buf *b, const struct sink_frame *frame)
{
    (void)buf_addf(b, "{\"depth\":%u,\"type\":\"%s\",\"func\":", frame->depth,
                   frame->python ? "python" : "native");
    json_string(b, frame->func);
    if (frame->python) {
        (void)buf_adds(b, ",\"file\":");
        json_string(b, frame->file);
        if (frame->line > 0)
            (void)buf_addf(b, ",\"line\":%d", frame->line);
        else
            (void)buf_adds(b, ",\"line\":null");
        if (frame->column > 0)
            (void)buf_addf(b, ",\"column\":%d", frame->column);
        if (frame->end_column > 0)
            (void)buf_addf(b, ",\"end_column\":%d", frame->end_column);
        if (frame->locals)
            (void)buf_addf(b, ",\"locals\":%s",
                           frame->locals[0] ? frame->locals : "null,\"note\":\"" NO_LOCALS "\"");
        (void)buf_addc(b, '}');
        return;
    }
    (void)buf_addf(b, ",\"ip\":\"0x%llx\",\"module\":", (unsigned long long)frame->ip);
    json_string(b, frame->module);
    (void)buf_addf(b, ",\"offset\":\"0x%llx\"}", (unsigned long long)frame->module_offset);
}

static int reply_thread(struct sink *sink, const struct sink_thread *t)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (!s->json) {
        if (s->any)
            (void)buf_addc(&s->text, '\n');
        text_thread(&s->text, t);
    } else {
        (void)buf_addf(&s->text, "%s{\"tid\":%d,\"name\":", s->any ? ",\n" : "", t->tid);
        json_string(&s->text, t->name);
        (void)buf_addf(&s->text, ",\"state\":\"%s\",\"syscall\":", t->state);
        if (t->syscall)
            json_string(&s->text, t->syscall);
        else
            (void)buf_adds(&s->text, "null");
        (void)buf_addf(&s->text, ",\"python\":%s,\"gil\":%s,\"frames\":[",
                       t->python ? "true" : "false", t->gil ? "true" : "false");
    }
    s->any = true;
    s->frames = s->notes = s->again = 0;
    s->same = 0;
    return 0;
}

static uint64_t add_text(uint64_t hash, const char *text)
{
    return hash_text(hash, text ? text : "") * 31;
}

/* Frames that were left out because they were all alike. */
static void text_again(struct sink_reply *s)
{
    if (s->again > ALIKE)
        (void)buf_addf(&s->text, "    ... the same %u times more\n", s->again - ALIKE);
    s->again = 0;
}

/* A deep recursion is a few lines, as in a traceback of Python's. */
static int reply_text(struct sink_reply *s, const struct sink_frame *f)
{
    uint64_t same = add_text(add_text(add_text(1, f->func), f->file), f->locals);
    same = (same ^ (uint64_t)f->line ^ f->ip << 1) | 1;
    if (same != s->same)
        text_again(s);
    else
        s->again++;
    s->same = same;
    if (s->again <= ALIKE)
        text_frame(&s->text, f);
    return 0;
}

static int reply_frame(struct sink *sink, const struct sink_frame *f)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (!s->json)
        return reply_text(s, f);
    if (s->frames++)
        (void)buf_adds(&s->text, ",\n ");
    json_frame(&s->text, f);
    return 0;
}

static void reply_note(struct sink *sink, const char *text)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (!s->json) {
        text_again(s);
        (void)buf_addf(&s->text, "    (%s)\n", text);
        return;
    }
    (void)buf_adds(&s->text, s->notes++ ? "," : "],\"notes\":[");
    json_string(&s->text, text);
}

/* Send what is written so far. */
static int reply_send(struct sink_reply *s)
{
    int r = s->text.failed;
    if (r == 0 && s->text.size)
        r = s->host->reply(s->out, s->text.data, s->text.size);
    buf_reset(&s->text);
    return r < 0 ? r : 0;
}

static int reply_end(struct sink *sink)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (s->json)
        (void)buf_adds(&s->text, "]}");
    else
        text_again(s);
    int r = reply_send(s);
    return r < 0 ? r : s->host->cancelled(s->out) ? -ECANCELED : 0;
}

void sink_reply_begin(struct sink_reply *s, const struct probing_host *h, struct probing_reply *out,
                      bool json)
{
    *s = (struct sink_reply){.sink = {reply_thread, reply_frame, reply_note, reply_end},
                             .host = h,
                             .out = out,
                             .json = json};
    buf_init(&s->text, TEXT_BYTES);
    if (json)
        (void)buf_adds(&s->text, "{\"threads\":[");
}

void sink_reply_warn(struct sink_reply *s, const char *text)
{
    if (!s->json) {
        (void)buf_addf(&s->text, "(%s)\n", text);
        return;
    }
    s->warned = true;
    buf_reset(&s->text);
    (void)buf_adds(&s->text, "{\"warning\":");
    json_string(&s->text, text);
    (void)buf_adds(&s->text, ",\"threads\":[");
}

int sink_reply_end(struct sink_reply *s, int status)
{
    if (status >= 0) {
        if (s->json)
            (void)buf_adds(&s->text, "]}\n");
        status = reply_send(s);
    }
    buf_done(&s->text);
    return status;
}

/* ---- rows ---- */

static int table_thread(struct sink *sink, const struct sink_thread *t)
{
    struct sink_table *s = (struct sink_table *)sink;
    s->thread = *t;
    (void)snprintf(s->name, sizeof(s->name), "%s", t->name);
    return 0;
}

static int table_row(struct sink_table *s, const struct sink_frame *f)
{
    const union probing_cell cells[] = {
        {.i = s->thread.tid},
        {.s = s->name},
        {.i = s->depth++},
        {.s = f->python ? "python" : "native"},
        {.s = f->func},
        {.s = f->python ? f->file : NULL},
        {.i = f->line > 0 ? f->line : PROBING_NULL_I64},
        {.i = f->python ? PROBING_NULL_I64 : (int64_t)f->ip},
        {.s = f->module[0] ? f->module : NULL},
        {.i = s->thread.gil},
        {.s = s->thread.state},
        {.s = f->locals && f->locals[0] ? f->locals : NULL},
        {.i = f->column > 0 ? f->column : PROBING_NULL_I64},
        {.i = f->depth},
    };
    return s->host->emit(s->out, cells, sizeof(cells) / sizeof(cells[0]));
}

static int table_frame(struct sink *sink, const struct sink_frame *f)
{
    struct sink_table *s = (struct sink_table *)sink;
    if (f->python || s->n_later == SINK_NATIVES)
        return table_row(s, f);
    s->later[s->n_later++] = *f;
    return 0;
}

static void table_note(struct sink *sink, const char *text)
{
    /* a row is a frame: what is missing has none */
    (void)sink;
    (void)text;
}

static int table_end(struct sink *sink)
{
    struct sink_table *s = (struct sink_table *)sink;
    int r = 0;
    for (uint32_t i = 0; i < s->n_later && r >= 0; i++)
        r = table_row(s, &s->later[i]);
    s->n_later = 0;
    return r;
}

void sink_table_begin(struct sink_table *s, const struct probing_host *h, struct probing_rows *out)
{
    *s = (struct sink_table){
        .sink = {table_thread, table_frame, table_note, table_end}, .host = h, .out = out};
}
