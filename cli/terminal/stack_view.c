/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/stack_view.c - see stack_view.h.
 */
#include "cli/terminal/stack_view.h"

#include <stdio.h>
#include <string.h>

#include "cli/terminal/pager.h"
#include "core/base/printable.h"
#include "sdk/lib/json.h"

#define INDENT "      " /* of the variables of a frame, as stack_format.c of plugin python has it */
#define VALUE_DEPTH 3   /* of containers in containers that are shown */
#define VALUE_BYTES ((size_t)4 << 20)

#define BOLD "\033[1m"
#define DIM "\033[2m"
#define PLAIN "\033[0m"

/* One thread. */
static struct {
    bool full, colours;
    uint32_t folded; /* frames of this thread */
    bool in_folded;  /* the frame before was folded: so are its variables */
    struct fit_view view;
} stack;

static void add_line(struct buf *ret, const char *style, const char *text, size_t size,
                     enum fit_cut cut)
{
    if (stack.colours && style[0] != '\0')
        (void)buf_adds(ret, style);
    fit_add(ret, text, size, stack.full ? 0 : cli_width(), cut);
    if (stack.colours && style[0] != '\0')
        (void)buf_adds(ret, PLAIN);
    (void)buf_addc(ret, '\n');
}

/* ---- torch.nn.Module's calls of forward() ---- */

/* "  4 Module._call_impl    .../torch/nn/modules/module.py:1194".  Before CPython 3.11 a function
 * has no class's name. */
static bool is_module_call(const char *line)
{
    static const char *const names[] = {"_call_impl", "_wrapped_call_impl"};
    const char *name = line + strspn(line, " ");
    bool found = false;

    name += strspn(name, "0123456789");
    name += strspn(name, " ");
    name += strncmp(name, "Module.", 7) == 0 ? 7 : 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);
        found = found || (strncmp(name, names[i], n) == 0 && strchr(" .", name[n]) != NULL);
    }
    return found && strstr(name, "/torch/nn/modules/module.py:") != NULL;
}

static void say_folded(struct buf *ret)
{
    char text[120];
    int n = snprintf(text, sizeof(text),
                     "    (%u frame%s of torch's Module._call_impl %s folded; --full shows all)",
                     stack.folded, stack.folded == 1 ? "" : "s", stack.folded == 1 ? "is" : "are");

    if (stack.folded > 0)
        add_line(ret, DIM, text, (size_t)n, FIT_END);
    stack.folded = 0;
    stack.in_folded = false;
}

/* ---- variables ---- */

static void add_value(struct buf *b, const struct json *v, int depth);

static void add_members(struct buf *b, const struct json *all, const char *equals, int depth)
{
    for (const struct json *m = all->first; m != NULL; m = m->next) {
        bool more = m->key != NULL && strcmp(m->key, "...") == 0; /* there are others */
        if (m != all->first)
            (void)buf_adds(b, ", ");
        if (m->key != NULL)
            (void)buf_addf(b, "%s%s", m->key, more ? "" : equals);
        if (!more)
            add_value(b, m, depth + 1);
    }
}

/* "Tensor [16, 32] int64 cpu", "dict of 2 {a: 1, b: 2}", "Linear(in_features=256)". */
static void add_object(struct buf *b, const struct json *v, int depth)
{
    const struct json *shape = json_get(v, "shape"), *items = json_get(v, "items");
    const struct json *value = json_get(v, "value"), *attributes = json_get(v, "attributes");

    (void)buf_adds(b, json_text(v, "type", "object"));
    if (shape != NULL) {
        (void)buf_addc(b, ' ');
        add_value(b, shape, depth);
        (void)buf_addf(b, " %s %s", json_text(v, "dtype", ""), json_text(v, "device", ""));
    } else if (json_get(v, "len") != NULL) {
        (void)buf_addf(b, " of %lld", (long long)json_int(v, "len", 0));
    }
    if (value != NULL) {
        (void)buf_adds(b, shape != NULL ? ": " : " ");
        add_value(b, value, depth);
    }
    if (items != NULL && items->first != NULL && depth < VALUE_DEPTH) {
        (void)buf_adds(b, items->type == JSON_ARRAY ? " [" : " {");
        add_members(b, items, ": ", depth);
        (void)buf_addc(b, items->type == JSON_ARRAY ? ']' : '}');
    }
    if (attributes != NULL && depth < VALUE_DEPTH) {
        (void)buf_addc(b, '(');
        add_members(b, attributes, "=", depth);
        (void)buf_addc(b, ')');
    }
    if (json_get(v, "name") != NULL)
        (void)buf_addf(b, " %s", json_text(v, "name", ""));
}

static void add_value(struct buf *b, const struct json *v, int depth)
{
    switch (v->type) {
    case JSON_NULL:
        (void)buf_adds(b, "None");
        return;
    case JSON_BOOL:
        (void)buf_adds(b, v->boolean ? "True" : "False");
        return;
    case JSON_NUMBER:
        (void)buf_adds(b, v->text);
        return;
    case JSON_STRING:
        (void)json_add_text(b, v->text, v->size);
        return;
    case JSON_ARRAY:
        (void)buf_addc(b, '[');
        add_members(b, v, ": ", depth);
        (void)buf_addc(b, ']');
        return;
    case JSON_OBJECT:
        add_object(b, v, depth);
        return;
    }
}

/* Parsing has undone the escapes of JSON's strings, so the text is made printable here. */
static void add_variable(struct buf *ret, const struct json *v)
{
    struct buf text, shown;

    buf_init(&text, VALUE_BYTES);
    buf_init(&shown, VALUE_BYTES);
    (void)buf_adds(&text, v->key);
    if (strcmp(v->key, "...") != 0) {
        (void)buf_adds(&text, " = ");
        add_value(&text, v, 0);
    }
    (void)buf_adds(&shown, INDENT);
    (void)printable_add(&shown, buf_text(&text), text.size, PRINTABLE_LINE);
    add_line(ret, "", buf_text(&shown), shown.size, FIT_END);
    buf_done(&text);
    buf_done(&shown);
}

/* false: it is no object of JSON. */
static bool add_variables(struct buf *ret, const char *line, size_t size)
{
    const size_t indent = sizeof(INDENT) - 1;
    struct json *all = NULL;
    struct json_error error;
    struct arena a;

    if (size <= indent || line[indent] != '{')
        return false;
    arena_init(&a, 0);
    bool is =
        json_read(&a, line + indent, size - indent, &all, &error) == 0 && all->type == JSON_OBJECT;
    for (const struct json *v = is ? all->first : NULL; v != NULL; v = v->next)
        add_variable(ret, v);
    arena_done(&a);
    return is;
}

/* ---- a line ---- */

static void add_frame(struct buf *ret, const char *line, size_t size)
{
    stack.in_folded = !stack.full && is_module_call(line);
    stack.folded += stack.in_folded;
    bool native = size > 0 && line[size - 1] == ')'; /* "name (module+0x12)" */
    if (!stack.in_folded)
        add_line(ret, native ? DIM : "", line, size, FIT_MIDDLE);
}

/* line: NULL, the answer has ended. */
static void view_line(const char *line, size_t size, struct buf *ret)
{
    bool variables = line != NULL && strncmp(line, INDENT, sizeof(INDENT) - 1) == 0;
    bool frame = line != NULL && !variables && line[strspn(line, " ")] >= '0' &&
                 line[strspn(line, " ")] <= '9' && line[0] == ' ';

    if (frame)
        add_frame(ret, line, size);
    else if (variables && stack.in_folded)
        return;
    else if (variables && add_variables(ret, line, size))
        return;
    else if (variables)
        add_line(ret, "", line, size, FIT_END);
    else {
        say_folded(ret);
        if (line != NULL)
            add_line(ret, strncmp(line, "Thread ", 7) == 0 ? BOLD : "", line, size, FIT_MIDDLE);
    }
}

const struct fit_view *stack_view(bool full, bool colours)
{
    stack.full = full;
    stack.colours = colours;
    stack.view.line = view_line;
    return &stack.view;
}
