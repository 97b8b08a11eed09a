/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/html.c - a flame graph to look at: one HTML or SVG file that needs nothing else.
 *
 * One thread.  The page's script is page.html; the picture's is picture.js.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/flame/flame.h"
#include "core/flame/pack.h"
#include "sdk/lib/json_text.h"

#define DATA_MARK "@DATA@"
#define ROW_HEIGHT 17
#define TOP 34        /* pixels for title and search */
#define NARROWEST 0.1 /* pixels; what is narrower is not drawn */

static int no_memory(const struct buf *out)
{
    return out->failed ? err_set(-ENOMEM, "no memory for the file") : 0;
}

/* A text inside a script: JSON, and nothing that could end the script. */
static void add_script_text(struct buf *out, const char *text)
{
    (void)buf_addc(out, '"');
    for (size_t n = strlen(text); n > 0;) {
        char letter[JSON_LETTER_BYTES];
        size_t size, took = json_letter(text, n, letter, &size);
        if (*text == '<' || *text == '>' || *text == '&')
            (void)buf_addf(out, "\\u%04x", (unsigned)*text);
        else
            (void)buf_add(out, letter, size);
        text += took;
        n -= took;
    }
    (void)buf_addc(out, '"');
}

static void add_nodes(const struct flame_tree *t, struct buf *out)
{
    uint32_t at = 0;
    do { /* before its children, after its larger siblings */
        const struct flame_node *n = &t->nodes[at];
        (void)buf_addf(out, "%s%u,%d,%lld,%lld", at == 0 ? "" : ",", n->depth,
                       at == 0 ? -1 : (int)n->label, (long long)n->value, (long long)n->count);
        if (t->difference)
            (void)buf_addf(out, ",%lld", (long long)n->before);
    } while ((at = flame_tree_next(t, at)) != 0);
}

static void add_data(const struct flame_tree *t, struct buf *out)
{
    (void)buf_adds(out, "{title:");
    add_script_text(out, t->f->title);
    (void)buf_adds(out, ",mode:");
    add_script_text(out, t->f->mode);
    (void)buf_addf(out, ",difference:%s,counted:%s,tails:%s,labels:[",
                   t->difference ? "true" : "false", t->f->counted ? "true" : "false",
                   t->f->tails ? "true" : "false");
    for (uint32_t i = 0; i < t->f->n_labels; i++) {
        (void)buf_adds(out, i ? ",\n" : "");
        add_script_text(out, t->f->labels[i]);
    }
    (void)buf_adds(out, "],\nnodes:[");
    add_nodes(t, out);
    (void)buf_adds(out, "]}");
}

int flame_html(const struct flame_tree *t, struct buf *out)
{
    const char *page = (const char *)pack_page_html;
    const char *mark = strstr(page, DATA_MARK);
    if (mark == NULL)
        return err_set(-EINVAL, "the page has no place for its data");
    (void)buf_add(out, page, (size_t)(mark - page));
    add_data(t, out);
    (void)buf_adds(out, mark + sizeof(DATA_MARK) - 1);
    return no_memory(out);
}

/* ---- SVG ---- */

static void add_xml_text(struct buf *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        const char *instead = *p == '<'   ? "&lt;"
                              : *p == '>' ? "&gt;"
                              : *p == '&' ? "&amp;"
                              : *p == '"' ? "&quot;"
                                          : NULL;
        if (instead != NULL)
            (void)buf_adds(out, instead);
        else if ((unsigned char)*p >= 0x20)
            (void)buf_addc(out, *p);
    }
}

/* "sgemm (libopenblas.so.0)": native code says in which object file it lies, Python code in which
 * file of Python's. */
static bool is_native(const char *label)
{
    const char *place = strrchr(label, '('), *py = place != NULL ? strstr(place, ".py") : NULL;
    return place != NULL && place > label && place[-1] == ' ' && place[1] != '<' &&
           (py == NULL || (py[3] != ')' && py[3] != ':'));
}

/* "[unknown]", "[waiting for a CPU]": what is said in place of a function. */
static bool is_remark(const char *label)
{
    size_t n = strlen(label);
    return label[0] == '[' && label[n - 1] == ']';
}

/* Colours that stay with a name, warm for Python, cool for native code, grey for no code; in a
 * difference red for more and blue for less. */
static void add_colour(const struct flame_tree *t, const struct flame_node *n, struct buf *out)
{
    uint32_t hash = 0;
    if (t->difference && n->depth > 0) {
        double all = (double)t->nodes[0].value, was = (double)t->nodes[0].before;
        double change =
            (all > 0 ? (double)n->value / all : 0) - (was > 0 ? (double)n->before / was : 0);
        int pale = (int)(235 - 200 * (change < 0 ? -change : change) / 0.3);
        pale = pale < 60 ? 60 : pale;
        (void)buf_addf(out, change >= 0 ? "rgb(245,%d,%d)" : "rgb(%d,%d,245)", pale, pale);
        return;
    }
    const char *label = n->depth > 0 ? t->f->labels[n->label] : "";
    for (const char *p = label; *p != '\0'; p++)
        hash = hash * 31 + (unsigned char)*p;
    if (is_remark(label))
        (void)buf_adds(out, "rgb(176,176,176)");
    else if (is_native(label))
        (void)buf_addf(out, "rgb(%u,%u,%u)", 105 + hash % 50, 165 + hash / 50 % 45,
                       185 + hash / 6000 % 50);
    else
        (void)buf_addf(out, "rgb(%u,%u,%u)", 205 + hash % 50, 90 + hash / 50 % 120,
                       30 + hash / 6000 % 50);
}

struct extent {
    double x, width; /* pixels */
};

/* So many letters of a label, with ".." for what has no room; no half of a letter.  Of a way of
 * modules the end says more: "..attn.c_proj". */
static void add_cut(const struct flame_tree *t, const char *label, size_t letters, struct buf *out)
{
    char cut[256];
    size_t n = strlen(label);
    const char *from = label;
    letters = letters < sizeof(cut) - 1 ? letters : sizeof(cut) - 1;
    bool tail = n > letters && t->f->tails;
    if (tail) {
        (void)buf_adds(out, "..");
        for (from += n - (letters - 2); ((unsigned char)*from & 0xc0) == 0x80; from++)
            continue;
    } else if (n > letters) {
        for (n = letters; n > 0 && ((unsigned char)label[n] & 0xc0) == 0x80; n--)
            continue;
    }
    (void)snprintf(cut, sizeof(cut), "%.*s", (int)n, from);
    add_xml_text(out, cut);
}

static void add_box(const struct flame_tree *t, const struct flame_node *n, struct extent p,
                    struct buf *out)
{
    const char *label = n->depth > 0 ? t->f->labels[n->label] : "all";
    double all = (double)(t->nodes[0].value ? t->nodes[0].value : 1);
    double was = (double)(t->nodes[0].before ? t->nodes[0].before : 1);
    int letters = (int)(p.width / 7), y = TOP + (int)n->depth * ROW_HEIGHT;
    (void)buf_addf(out, "<g><title>");
    add_xml_text(out, label);
    bool memory = strcmp(t->f->mode, "memory") == 0; /* bytes; else ns */
    if (strcmp(t->f->mode, FLAME_NUMBERS) == 0)
        (void)buf_addf(out, " - %lld", (long long)n->value);
    else
        (void)buf_addf(out, " - %.2f %s", (double)n->value / (memory ? 1048576.0 : 1e6),
                       memory ? "MB" : "ms");
    (void)buf_addf(out, ", %.2f %%", 100 * (double)n->value / all);
    if (t->f->counted)
        (void)buf_addf(out, ", %lld sample%s", (long long)n->count, n->count == 1 ? "" : "s");
    if (t->difference)
        (void)buf_addf(out, ", before %.2f %%", 100 * (double)n->before / was);
    (void)buf_addf(out, "</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"",
                   p.x, y, p.width, ROW_HEIGHT - 1);
    add_colour(t, n, out);
    (void)buf_addf(out, "\"/><text x=\"%.2f\" y=\"%d\">", p.x + 3, y + 12);
    if (letters > 2)
        add_cut(t, label, (size_t)letters, out);
    (void)buf_adds(out, "</text></g>\n");
}

/* x: room for each node's left edge in pixels.  The depth of the deepest box. */
static uint32_t add_boxes(const struct flame_tree *t, double *x, struct buf *out)
{
    double all = (double)(t->nodes[0].value ? t->nodes[0].value : 1);
    uint32_t deepest = 0, at = 0;
    x[0] = 0;
    do {
        const struct flame_node *n = &t->nodes[at];
        double width = at == 0 ? t->f->width : (double)t->f->width * (double)n->value / all;
        double next = x[at];
        bool drawn = at == 0 || width >= NARROWEST;
        for (uint32_t i = drawn ? n->child : 0; i; i = t->nodes[i].sibling) {
            x[i] = next;
            next += (double)t->f->width * (double)t->nodes[i].value / all;
        }
        if (drawn)
            add_box(t, n, (struct extent){x[at], width}, out);
        deepest = drawn && n->depth > deepest ? n->depth : deepest;
        at = drawn ? flame_tree_next(t, at) : flame_tree_beside(t, at);
    } while (at != 0);
    return deepest;
}

int flame_svg(const struct flame_tree *t, struct buf *out)
{
    struct buf boxes;
    double *x = calloc(t->n, sizeof(*x));
    if (x == NULL)
        return err_set(-ENOMEM, "no memory for the file");
    buf_init(&boxes, (size_t)1 << 30);
    uint32_t deepest = add_boxes(t, x, &boxes);
    free(x);
    int height = TOP + (int)(deepest + 1) * ROW_HEIGHT + 24;
    (void)buf_addf(out,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "
                   "xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "viewBox=\"0 0 %d %d\" font-family=\"monospace\" font-size=\"11\">\n"
                   "<style>rect{cursor:pointer}text{pointer-events:none}.found "
                   "rect{fill:#c050e0}</style>\n<rect width=\"100%%\" height=\"100%%\" "
                   "fill=\"#fffdf5\"/>\n<text x=\"6\" y=\"16\" font-size=\"13\">",
                   t->f->width, height, t->f->width, height);
    add_xml_text(out, t->f->title);
    (void)buf_addf(out,
                   "</text>\n<text id=\"search\" x=\"%d\" y=\"16\" style=\"pointer-events:all;"
                   "cursor:pointer\">search</text>\n<text id=\"said\" x=\"6\" y=\"%d\"></text>\n"
                   "<g id=\"boxes\"%s>\n",
                   t->f->width - 60, height - 8, t->f->tails ? " data-tails=\"1\"" : "");
    (void)buf_add(out, boxes.data, boxes.size);
    (void)buf_adds(out, "</g>\n<script><![CDATA[\n");
    (void)buf_add(out, pack_picture_js, pack_picture_js_size);
    (void)buf_adds(out, "]]></script>\n</svg>\n");
    bool failed = boxes.failed;
    buf_done(&boxes);
    return failed ? err_set(-ENOMEM, "no memory for the file") : no_memory(out);
}
