/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_table.c - probing.table(): a stored table of a script, and add{...} on it.
 *
 * Threads: the script's own.  SQL sees the table as script.<name>; it stays when the script ends.
 */
#include <errno.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"

#define CLASS "probing.table"
#define COLUMNS_MAX 64

#define TEXTS_MAX_BYTES ((uint64_t)16 << 20)     /* new texts of one script */
#define ALL_TEXTS_MAX_BYTES ((uint64_t)64 << 20) /* of all scripts; the process has room for 224 */
#define TEXT_HEAD_BYTES 16                       /* about what a text takes beside its bytes */

struct script_table {
    struct table *table;
};

static uint32_t type_of(lua_State *L, const char *column, const char *name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {
        {"i64", PROBING_I64}, {"f64", PROBING_F64}, {"str", PROBING_STR}, {"time", PROBING_TIME}};
    for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].type;
    return (uint32_t)luaL_error(L, "column '%s' is of type '%s'; there are i64, f64, str and time",
                                column, name ? name : "?");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct probing_column *)a)->name,
                  ((const struct probing_column *)b)->name);
}

/* Columns are {name = "type", ...}, in order of name because a Lua table has none; or
 * {{"name", "type"}, ...} in the order written.  Names are borrowed from the table at `at`. */
static uint32_t read_columns(lua_State *L, int at, struct probing_column columns[COLUMNS_MAX])
{
    uint32_t n = 0;
    bool ordered = lua_rawlen(L, at) > 0;

    lua_pushnil(L);
    while (lua_next(L, at)) {
        if (n == COLUMNS_MAX)
            (void)luaL_error(L, "a table has at most %d columns", COLUMNS_MAX);
        if (ordered) {
            luaL_argcheck(L, lua_istable(L, -1), 2,
                          "in a list of columns each is {\"name\", \"type\"}");
            lua_rawgeti(L, -1, 1);
            lua_rawgeti(L, -2, 2);
        } else {
            luaL_argcheck(L, lua_type(L, -2) == LUA_TSTRING, 2, "columns are {name = \"type\"}");
            lua_pushvalue(L, -2);
            lua_pushvalue(L, -2);
        }
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        luaL_argcheck(L, name != NULL, 2, "a column's name is a string");
        const char *type = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        columns[n] =
            (struct probing_column){.name = name, .type = type_of(L, name, type), .doc = ""};
        n++;
        lua_pop(L, 3);
    }
    luaL_argcheck(L, n > 0, 2, "a table needs a column");
    if (!ordered)
        qsort(columns, n, sizeof(columns[0]), by_name);
    return n;
}

static void read_options(lua_State *L, int at, struct probing_table_desc *d)
{
    lua_pushnil(L);
    while (lua_next(L, at)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        const char *value = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        int rc = -EINVAL;
        if (value && strcmp(key, "keep") == 0)
            rc = parse_ns(value, &d->keep_ns);
        else if (value && strcmp(key, "keep_bytes") == 0)
            rc = parse_bytes(value, &d->keep_bytes);
        else if (value && strcmp(key, "doc") == 0)
            rc = (d->doc = value)
                     ? 0
                     : -EINVAL; /* borrowed from the options while they are on the stack */
        else
            (void)luaL_error(
                L,
                "option '%s' of table '%s': there are keep = \"1h\", keep_bytes = \"10MB\" "
                "and doc = \"...\"",
                key, d->name);
        if (rc < 0)
            (void)luaL_error(L, "option '%s' of table '%s': %s", key, d->name, err_text());
        lua_pop(L, 1);
    }
}

static bool same_columns(const struct table *t, const struct probing_table_desc *d)
{
    bool same = t->n_cells == d->n_columns;
    for (uint32_t i = 0; same && i < t->n_cells; i++)
        same = t->columns[i + 2].type == d->columns[i].type && /* after ts and tid */
               strcmp(t->columns[i + 2].name, d->columns[i].name) == 0;
    return same;
}

static bool is_known(struct table *const *tables, uint32_t n, const struct probing_table_desc *d)
{
    bool known = false;
    for (uint32_t i = 0; i < n && !known; i++) {
        const char *name = atomic_load_explicit(&tables[i]->name, memory_order_acquire);
        known = strcmp(name, d->name) == 0 && same_columns(tables[i], d);
    }
    return known;
}

static uint32_t remember_table(struct table **tables, uint32_t n, uint32_t max, struct table *t)
{
    bool known = false;
    for (uint32_t i = 0; i < n; i++)
        known = known || tables[i] == t;
    if (!known && n < max)
        tables[n++] = t;
    return n;
}

/* Tables stay for good, so neither one script nor all of them may take what the process has. */
static int add_table(struct script *s, const struct probing_table_desc *d, struct table **ret)
{
    struct scripts *all = s->owner;
    int rc = 0;

    (void)pthread_mutex_lock(&all->limits);
    if (s->n_tables == SCRIPT_TABLES_MAX && !is_known(s->tables, s->n_tables, d))
        rc = err_set(-ENOSPC, "a script may have %d tables", SCRIPT_TABLES_MAX);
    else if (all->n_tables == SCRIPTS_TABLES_MAX && !is_known(all->tables, all->n_tables, d))
        rc = err_set(-ENOSPC, "the scripts of this process have made %d tables, the maximum",
                     SCRIPTS_TABLES_MAX);
    else
        rc = all->store.table_add(all->store.arg, "script", d, NULL, ret);
    if (rc >= 0) {
        s->n_tables = remember_table(s->tables, s->n_tables, SCRIPT_TABLES_MAX, *ret);
        all->n_tables = remember_table(all->tables, all->n_tables, SCRIPTS_TABLES_MAX, *ret);
    }
    (void)pthread_mutex_unlock(&all->limits);
    return rc;
}

int script_table(lua_State *L)
{
    struct script *s = script_of(L);
    struct probing_column columns[COLUMNS_MAX];
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .columns = columns,
                                   .doc = "made by a script"};

    d.name = luaL_checkstring(L, 1);
    luaL_argcheck(L, text_is_name(d.name), 1, "a table's name is [a-z][a-z0-9_]*");
    luaL_checktype(L, 2, LUA_TTABLE);
    d.n_columns = read_columns(L, 2, columns);
    if (!lua_isnoneornil(L, 3)) {
        luaL_checktype(L, 3, LUA_TTABLE);
        read_options(L, 3, &d);
    }
    struct script_table *t = lua_newuserdatauv(L, sizeof(*t), 0);
    t->table = NULL;
    luaL_setmetatable(L, CLASS);
    int rc = add_table(s, &d, &t->table);
    if (rc < 0)
        return luaL_error(L, "table '%s': %s", d.name, err_why(rc));
    return 1;
}

static union probing_cell null_of(uint32_t type)
{
    if (type == PROBING_F64)
        return (union probing_cell){.u = PROBING_NULL_F64};
    if (type == PROBING_STR)
        return (union probing_cell){.u = PROBING_NULL_ID};
    return (union probing_cell){.i = PROBING_NULL_I64};
}

/* Texts have a number, and stay for good in a file that all of the process share.  An id above the
 * last one seen is a text that is new. */
static int intern_of(struct script *s, const char *text, size_t size, uint64_t *ret_id)
{
    struct scripts *all = s->owner;
    int rc = 0;

    (void)pthread_mutex_lock(&all->limits);
    if (s->text_bytes > TEXTS_MAX_BYTES || all->text_bytes > ALL_TEXTS_MAX_BYTES)
        rc = err_set(-ENOSPC,
                     "scripts may store %llu MiB of distinct texts each and %llu MiB together, "
                     "because these are never removed; store a number, or fewer distinct texts",
                     (unsigned long long)(TEXTS_MAX_BYTES >> 20),
                     (unsigned long long)(ALL_TEXTS_MAX_BYTES >> 20));
    else
        rc = all->store.intern(all->store.arg, text, size, ret_id);
    if (rc == 0 && *ret_id > s->last_text) {
        s->last_text = *ret_id;
        s->text_bytes += size + TEXT_HEAD_BYTES;
        all->text_bytes += size + TEXT_HEAD_BYTES;
    }
    (void)pthread_mutex_unlock(&all->limits);
    return rc;
}

/* The value on top of the stack as a cell of this column. */
static union probing_cell cell_of(lua_State *L, const struct table_column *column)
{
    struct script *s = script_of(L);
    union probing_cell cell = null_of(column->type);
    size_t size;
    int ok = 1;

    if (lua_isnil(L, -1))
        return cell;
    if (column->type == PROBING_F64) {
        ok = lua_type(L, -1) == LUA_TNUMBER;
        cell.f = lua_tonumber(L, -1);
    } else if (column->type == PROBING_STR) {
        ok = lua_type(L, -1) == LUA_TSTRING || lua_type(L, -1) == LUA_TNUMBER;
        const char *text = ok ? lua_tolstring(L, -1, &size) : NULL;
        if (ok && intern_of(s, text, size, &cell.u) < 0)
            (void)luaL_error(L, "column '%s': %s", column->name, err_text());
    } else {
        ok = lua_type(L, -1) == LUA_TNUMBER;
        cell.i = ok ? lua_tointegerx(L, -1, &ok) : 0;
        if (ok && column->type == PROBING_TIME) /* scripts speak UTC, rings the monotonic clock */
            cell.i -= clock_utc_offset();
    }
    if (!ok)
        (void)luaL_error(L, "column '%s' takes %s, not %s", column->name,
                         column->type == PROBING_F64   ? "a number"
                         : column->type == PROBING_STR ? "a string"
                                                       : "a whole number",
                         lua_type(L, -1) == LUA_TNUMBER ? "a fraction" : luaL_typename(L, -1));
    return cell;
}

static int add_row(lua_State *L)
{
    struct script_table *t = luaL_checkudata(L, 1, CLASS);
    const struct table *table = t->table;
    const struct table_column *columns = table->columns + 2; /* after ts and tid */
    union probing_cell cells[COLUMNS_MAX];
    uint32_t used = 0;

    luaL_checktype(L, 2, LUA_TTABLE);
    for (uint32_t i = 0; i < table->n_cells; i++) {
        int type = lua_getfield(L, 2, columns[i].name);
        used += type != LUA_TNIL ? 1 : 0;
        cells[i] = cell_of(L, &columns[i]);
        lua_pop(L, 1);
    }
    uint32_t given = 0;
    lua_pushnil(L);
    while (lua_next(L, 2)) {
        given++;
        lua_pop(L, 1);
    }
    if (given != used) { /* something that is no column: find out what, and say it */
        lua_pushnil(L);
        while (lua_next(L, 2)) {
            const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
            bool known = false;
            for (uint32_t i = 0; key && i < table->n_cells; i++)
                known = known || strcmp(key, columns[i].name) == 0;
            if (!known)
                return luaL_error(L, "table '%s' has no column '%s'", table->name,
                                  key ? key : luaL_typename(L, -2));
            lua_pop(L, 1);
        }
    }
    int r = host_append(t->table, clock_now(), cells, table->n_cells, /* tail= */ NULL, 0);
    if (r == 0)
        atomic_fetch_add_explicit(&script_of(L)->rows, 1, memory_order_relaxed);
    lua_pushboolean(L, r == 0); /* false: no room, counted in probing.lost */
    return 1;
}

int script_open_table(lua_State *L)
{
    static const luaL_Reg methods[] = {{"add", add_row}, {NULL, NULL}};

    script_new_class(L, CLASS, methods, /* more= */ NULL);
    return 0;
}
