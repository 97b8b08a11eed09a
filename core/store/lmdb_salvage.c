/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/lmdb_salvage.c - reads LMDB's file without LMDB, which trusts its file and would crash
 * on a damaged one.
 *
 * First by LMDB's own trees; where these are broken, every page is looked at for segments, which
 * know themselves what they are and carry their checksums.  One thread.  It changes nothing.
 *
 * What is used of LMDB's format (0.9, 64 bit, little-endian), all in pages of `page` bytes:
 *
 *     a page     u64 its number, u16 -, u16 flags, then u16 end of the pointers, u16 - (or, of an
 *                overflow page, u32 how many pages); from +16 u16 pointers to nodes
 *     a node     u16 low, u16 high, u16 flags, u16 key size, the key, then the data
 *                of a branch: the child's page is low, high and flags together
 *                of a leaf: low and high are the data's size; flag 1: the data is the number of the
 *                overflow page that has it, flag 2: the data is a tree
 *     page 0, 1  +16 u32 magic, u32 version, u64, u64 map size, two trees, u64 last page, u64
 *                transaction: the later transaction counts
 *     a tree     48 bytes: u32 page size (first tree only), u16, u16 depth, u64 x 4 counts, the
 *                last of them entries, u64 root page
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/store/internal.h"

#define PAGE_HEAD 16
#define NODE_HEAD 8
#define TREE_BYTES 48
#define LMDB_MAGIC UINT32_C(0xBEEFC0DE)
#define LMDB_VERSION 1
#define DEPTH_MAX 32 /* LMDB's own limit */
#define NO_PAGE UINT64_MAX

enum { IS_BRANCH = 1, IS_LEAF = 2, IS_OVERFLOW = 4 };
enum { NODE_BIG = 1, NODE_TREE = 2 };

struct tree {
    uint64_t entries, root;
};

struct walk {
    const uint8_t *file;
    uint64_t pages; /* whole ones that the file has */
    uint32_t page;  /* bytes */
    uint8_t *seen;  /* a bit a page: no page is part of a tree twice */
    uint64_t entries;
    bool broken;
    page_value_fn *fn;
    void *arg;
    struct tree trees[2]; /* "meta", "segments" */
};

static uint16_t u16_at(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint32_t u32_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint64_t u64_at(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* A page that says of itself that it is this one, and of this kind; NULL: it is not. */
static const uint8_t *page_at(const struct walk *w, uint64_t number, uint16_t kind)
{
    if (number >= w->pages)
        return NULL;
    const uint8_t *p = w->file + number * w->page;
    return u64_at(p) == number && (u16_at(p + 10) & (IS_BRANCH | IS_LEAF | IS_OVERFLOW)) == kind
               ? p
               : NULL;
}

static uint32_t nodes_of(const struct walk *w, const uint8_t *page)
{
    uint16_t lower = u16_at(page + 12);
    return lower < PAGE_HEAD || lower > w->page ? 0 : (lower - PAGE_HEAD) / 2u;
}

struct node {
    uint16_t flags;
    uint32_t size; /* of the data, as it says */
    MDB_val key;
    const uint8_t *data;
    uint32_t room; /* bytes from data to the page's end */
};

static bool node_at(const struct walk *w, const uint8_t *page, uint32_t i, struct node *ret)
{
    uint32_t at = u16_at(page + PAGE_HEAD + 2 * i);
    if (at < PAGE_HEAD || at + NODE_HEAD > w->page)
        return false;
    const uint8_t *p = page + at;
    uint32_t key = u16_at(p + 6);
    if (at + NODE_HEAD + key > w->page)
        return false;
    *ret = (struct node){.flags = u16_at(p + 4),
                         .size = u16_at(p) | (uint32_t)u16_at(p + 2) << 16,
                         .key = value_of(p + NODE_HEAD, key),
                         .data = p + NODE_HEAD + key,
                         .room = w->page - at - NODE_HEAD - key};
    return true;
}

/* Find a leaf's data, within the page or in overflow pages. */
static bool data_of(const struct walk *w, const struct node *n, MDB_val *ret)
{
    if (!(n->flags & NODE_BIG)) {
        *ret = value_of(n->data, n->size);
        return n->size <= n->room;
    }
    if (n->room < 8)
        return false;
    uint64_t number = u64_at(n->data);
    const uint8_t *p = page_at(w, number, IS_OVERFLOW);
    if (!p || n->size > (w->pages - number) * w->page - PAGE_HEAD)
        return false;
    *ret = value_of(p + PAGE_HEAD, n->size);
    return true;
}

static void walk_page(struct walk *w, uint64_t number, int depth);

static void walk_leaf(struct walk *w, const uint8_t *page)
{
    for (uint32_t i = 0; i < nodes_of(w, page); i++) {
        struct node n;
        MDB_val value;
        if (!node_at(w, page, i, &n) || !data_of(w, &n, &value)) {
            w->broken = true;
            continue;
        }
        w->entries++;
        if (!(n.flags & NODE_TREE)) {
            w->fn(w->arg, &n.key, &value, /* in_tree= */ true);
        } else if (value.mv_size >= TREE_BYTES) {
            bool meta = n.key.mv_size >= 4 && memcmp(n.key.mv_data, "meta", 4) == 0;
            const uint8_t *p = value.mv_data;
            w->trees[meta ? 0 : 1] =
                (struct tree){.entries = u64_at(p + 32), .root = u64_at(p + 40)};
        }
    }
}

static void walk_page(struct walk *w, uint64_t number, int depth)
{
    const uint8_t *page = page_at(w, number, IS_LEAF);
    bool branch = !page;
    if (branch)
        page = page_at(w, number, IS_BRANCH);
    if (!page || depth > DEPTH_MAX || w->seen[number / 8] >> (number % 8) & 1) {
        w->broken = true;
        return;
    }
    w->seen[number / 8] |= (uint8_t)(1u << (number % 8));
    if (!branch) {
        walk_leaf(w, page);
        return;
    }
    for (uint32_t i = 0; i < nodes_of(w, page); i++) {
        struct node n;
        if (!node_at(w, page, i, &n))
            w->broken = true;
        else
            walk_page(w, n.size | (uint64_t)n.flags << 32, depth + 1);
    }
}

static void walk_tree(struct walk *w, const struct tree *t)
{
    w->entries = 0;
    if (t->root == NO_PAGE && t->entries == 0)
        return;
    walk_page(w, t->root, 0);
    if (w->entries != t->entries)
        w->broken = true;
}

/* The page of the two at the file's start that counts; NULL: none is whole. */
static const uint8_t *find_meta(const uint8_t *file, size_t size)
{
    const uint8_t *best = NULL;
    uint32_t page = 4096;
    for (int i = 0; i < 2 && (i + UINT64_C(1)) * page <= size; i++) {
        const uint8_t *p = file + (size_t)i * page + PAGE_HEAD;
        uint32_t bytes = u32_at(p + 24);
        if (u32_at(p) != LMDB_MAGIC || u32_at(p + 4) != LMDB_VERSION || bytes < 512 ||
            bytes > 65536 || (bytes & (bytes - 1)) || (i == 1 && bytes != page))
            continue;
        page = bytes;
        if (!best || u64_at(p + 128) > u64_at(best + 128))
            best = p;
    }
    return best;
}

/* Every page that may be one of ours, whatever any tree says. */
static void sweep_pages(struct walk *w)
{
    for (uint64_t number = 0; number < w->pages; number++) {
        const uint8_t *page = page_at(w, number, IS_OVERFLOW);
        MDB_val value;
        if (page) {
            value = value_of(page + PAGE_HEAD, (w->pages - number) * w->page - PAGE_HEAD);
            w->fn(w->arg, /* key= */ NULL, &value, /* in_tree= */ false);
            continue;
        }
        page = page_at(w, number, IS_LEAF);
        for (uint32_t i = 0; page && i < nodes_of(w, page); i++) {
            struct node n;
            if (node_at(w, page, i, &n) && !(n.flags & (NODE_BIG | NODE_TREE)) &&
                data_of(w, &n, &value))
                w->fn(w->arg, &n.key, &value, /* in_tree= */ false);
        }
    }
}

int pages_read(const void *file, size_t size, page_value_fn *fn, void *arg, struct buf *damage)
{
    const uint8_t *meta = find_meta(file, size);
    struct walk w = {.file = file, .page = meta ? u32_at(meta + 24) : 4096, .fn = fn, .arg = arg};
    w.pages = size / w.page;
    w.seen = calloc(w.pages / 8 + 1, 1);
    if (!w.seen)
        return err_set(-ENOMEM, "no memory for reading data.mdb");
    if (!meta) {
        (void)buf_adds(damage, "data.mdb has no whole first page\n");
        w.broken = true;
    } else {
        uint64_t last = u64_at(meta + 120);
        if (last >= w.pages)
            (void)buf_addf(damage, "data.mdb is truncated: %zu bytes of %llu\n", size,
                           (unsigned long long)(last + 1) * w.page);
        struct tree top = {.entries = u64_at(meta + 24 + TREE_BYTES + 32),
                           .root = u64_at(meta + 24 + TREE_BYTES + 40)};
        w.trees[0].root = w.trees[1].root = NO_PAGE;
        walk_tree(&w, &top);
        for (int i = 0; i < 2; i++)
            walk_tree(&w, &w.trees[i]);
        w.broken |= last >= w.pages;
    }
    if (w.broken)
        sweep_pages(&w);
    free(w.seen);
    return w.broken ? 1 : 0;
}
