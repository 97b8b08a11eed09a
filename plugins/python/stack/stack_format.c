/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/stack/stack_format.c - the three forms of a stack: text for people, JSON, rows for
 * SQL.
 *
 * The owner's thread only.  Names come from the user's program and are shown as they are, except
 * that control characters cannot reach a terminal.
 */
#include "stack/stack_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"
#include "lib/json_text.h"

#define FUNC_WIDTH 22 /* columns of a function's name before the place begins to shift */
#define NO_LOCALS "locals could not be read: the frame was running"
#define ALIKE 2u /* repetitions of a frame that are shown, beside it */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_clean(FILE *f, const char *text)
{
    for (; *text; text++)
        (void)fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, f);
}

static size_t columns_of(const char *utf8)
{
    size_t n = 0;
    for (; *utf8; utf8++)
        n += (*utf8 & 0xc0) != 0x80;
    return n;
}

static void text_thread(FILE *f, const struct sink_thread *t)
{
    (void)fprintf(f, "Thread %d \"", t->tid);
    put_clean(f, t->name);
    (void)fprintf(f, "\" (%s%s%s%s)\n", t->state, t->syscall ? " in " : "",
                  t->syscall ? t->syscall : "", t->gil ? ", holds the GIL" : "");
}

static void text_place(FILE *f, const struct sink_frame *frame)
{
    if (frame->python) {
        put_clean(f, frame->file);
        if (frame->line > 0)
            (void)fprintf(f, ":%d", frame->line);
        else
            (void)fputs(":?", f);
    } else if (frame->module[0]) {
        (void)fputc('(', f);
        put_clean(f, last_part(frame->module));
        (void)fprintf(f, "+0x%llx)", (unsigned long long)frame->module_offset);
    } else {
        (void)fprintf(f, "(0x%llx)", (unsigned long long)frame->ip);
    }
}

static void text_frame(FILE *f, const struct sink_frame *frame)
{
    (void)fprintf(f, "%3u ", frame->depth);
    put_clean(f, frame->func);
    for (size_t n = columns_of(frame->func); frame->python && n < FUNC_WIDTH; n++)
        (void)fputc(' ', f);
    (void)fputc(' ', f);
    text_place(f, frame);
    (void)fputc('\n', f);
    if (frame->locals && !frame->locals[0])
        (void)fprintf(f, "      (%s)\n", NO_LOCALS);
    else if (frame->locals && strcmp(frame->locals, "{}") != 0)
        (void)fprintf(f, "      %s\n", frame->locals);
}

/* ---- into memory ---- */

static int memory_thread(struct sink *sink, const struct sink_thread *t)
{
    struct sink_text *s = (struct sink_text *)sink;
    if (s->file)
        text_thread(s->file, t);
    return 0;
}

static int memory_frame(struct sink *sink, const struct sink_frame *f)
{
    struct sink_text *s = (struct sink_text *)sink;
    /* what the thread does is best said by its innermost Python frame */
    if (f->python && !s->first[0])
        (void)snprintf(s->first, sizeof(s->first), "%.100s (%.180s:%d)", f->func, f->file, f->line);
    if (s->file && f->depth < s->limit)
        text_frame(s->file, f);
    else if (s->file && f->depth == s->limit)
        (void)fputs("    ...\n", s->file);
    return 0;
}

static void memory_note(struct sink *sink, const char *text)
{
    struct sink_text *s = (struct sink_text *)sink;
    if (s->file)
        (void)fprintf(s->file, "    (%s)\n", text);
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
    s->file = open_memstream(&s->text, &s->size);
}

char *sink_text_end(struct sink_text *s)
{
    if (s->file)
        (void)fclose(s->file);
    return s->text;
}

/* ---- to a client ---- */

static void json_string(FILE *f, const char *text)
{
    (void)fputc('"', f);
    for (size_t n = strlen(text); n > 0;) {
        char letter[JSON_LETTER_BYTES];
        size_t size, took = json_letter(text, n, letter, &size);
        (void)fwrite(letter, 1, size, f);
        text += took;
        n -= took;
    }
    (void)fputc('"', f);
}

static void json_frame(FILE *f, const struct sink_frame *frame)
{
    (void)fprintf(f, "{\"depth\":%u,\"type\":\"%s\",\"func\":", frame->depth,
                  frame->python ? "python" : "native");
    json_string(f, frame->func);
    if (frame->python) {
        (void)fputs(",\"file\":", f);
        json_string(f, frame->file);
        if (frame->line > 0)
            (void)fprintf(f, ",\"line\":%d", frame->line);
        else
            (void)fputs(",\"line\":null", f);
        if (frame->column > 0)
            (void)fprintf(f, ",\"column\":%d", frame->column);
        if (frame->end_column > 0)
            (void)fprintf(f, ",\"end_column\":%d", frame->end_column);
        if (frame->locals)
            (void)fprintf(f, ",\"locals\":%s",
                          frame->locals[0] ? frame->locals : "null,\"note\":\"" NO_LOCALS "\"");
        (void)fputc('}', f);
        return;
    }
    (void)fprintf(f, ",\"ip\":\"0x%llx\",\"module\":", (unsigned long long)frame->ip);
    json_string(f, frame->module);
    (void)fprintf(f, ",\"offset\":\"0x%llx\"}", (unsigned long long)frame->module_offset);
}

static int reply_thread(struct sink *sink, const struct sink_thread *t)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (!s->json) {
        if (s->any)
            (void)fputc('\n', s->file);
        text_thread(s->file, t);
    } else {
        (void)fprintf(s->file, "%s{\"tid\":%d,\"name\":", s->any ? ",\n" : "", t->tid);
        json_string(s->file, t->name);
        (void)fprintf(s->file, ",\"state\":\"%s\",\"syscall\":", t->state);
        if (t->syscall)
            json_string(s->file, t->syscall);
        else
            (void)fputs("null", s->file);
        (void)fprintf(s->file, ",\"python\":%s,\"gil\":%s,\"frames\":[",
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
        (void)fprintf(s->file, "    ... the same %u times more\n", s->again - ALIKE);
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
        text_frame(s->file, f);
    return 0;
}

static int reply_frame(struct sink *sink, const struct sink_frame *f)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (!s->json)
        return reply_text(s, f);
    if (s->frames++)
        (void)fputs(",\n ", s->file);
    json_frame(s->file, f);
    return 0;
}

static void reply_note(struct sink *sink, const char *text)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (!s->json) {
        text_again(s);
        (void)fprintf(s->file, "    (%s)\n", text);
        return;
    }
    (void)fputs(s->notes++ ? "," : "],\"notes\":[", s->file);
    json_string(s->file, text);
}

/* Send what is written so far. */
static int reply_send(struct sink_reply *s)
{
    if (fflush(s->file))
        return -ENOMEM;
    int r = s->size ? s->host->reply(s->out, s->text, s->size) : 0;
    return fseeko(s->file, 0, SEEK_SET) ? -ENOMEM : r < 0 ? r : 0;
}

static int reply_end(struct sink *sink)
{
    struct sink_reply *s = (struct sink_reply *)sink;
    if (s->json)
        (void)fputs("]}", s->file);
    else
        text_again(s);
    int r = reply_send(s);
    return r < 0 ? r : s->host->cancelled(s->out) ? -ECANCELED : 0;
}

int sink_reply_begin(struct sink_reply *s, const struct probing_host *h, struct probing_reply *out,
                     bool json)
{
    *s = (struct sink_reply){.sink = {reply_thread, reply_frame, reply_note, reply_end},
                             .host = h,
                             .out = out,
                             .json = json};
    s->file = open_memstream(&s->text, &s->size);
    if (!s->file)
        return -ENOMEM;
    if (json)
        (void)fputs("{\"threads\":[", s->file);
    return 0;
}

void sink_reply_warn(struct sink_reply *s, const char *text)
{
    if (!s->json) {
        (void)fprintf(s->file, "(%s)\n", text);
        return;
    }
    s->warned = true;
    (void)fseeko(s->file, 0, SEEK_SET);
    (void)fputs("{\"warning\":", s->file);
    json_string(s->file, text);
    (void)fputs(",\"threads\":[", s->file);
}

int sink_reply_end(struct sink_reply *s, int status)
{
    if (status >= 0) {
        if (s->json)
            (void)fputs("]}\n", s->file);
        status = reply_send(s);
    }
    (void)fclose(s->file);
    free(s->text);
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
