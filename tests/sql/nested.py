# SPDX-License-Identifier: Apache-2.0
"""Statements by chance whose selects stand within each other: correlated subqueries, laterals, with
(recursive), set operations, groups and windows, over the tables of statements.py.

Each is valid in PostgreSQL, but for those of `free` (recursive names in subqueries), and its answer
is one: what is cut is ordered by all columns, and windows ask for nothing that ties leave open.
"""
from forms import AGGREGATES
from statements import CAST, COLUMNS, NULL, SMALL, Generator

TABLES = {name: dict(COLUMNS, id="bigint") for name in "ab"}
# Rows with gaps over several batches of the scan below.
SERIES = "(select n::bigint as n, n::bigint %% 5::bigint as k from generate_series(1, 6000) g(n) "
SERIES += "where n %% %d < %d)"
KINDS = ["bigint", "bigint", "bigint", "double", "text", "text", "boolean", "boolean", "date"]
EXACT = {  # aggregates of own columns whose answer hangs on no order
    "bigint": ["count(*)", "count({any})", "count(distinct {any})", "min({bigint})",
               "max({bigint})", "sum({small})::bigint", "count(*) filter (where {boolean})",
               "sum({small}) filter (where {boolean})::bigint", "bit_or({small})",
               "percentile_disc(0.4) within group (order by {bigint})"],
    "double": ["min({double})", "max({double})", "(avg({small}) * 8)::float8",
               "percentile_disc(0.75) within group (order by {double})"],
    "text": ["min({text})", "max({text})", "string_agg(distinct {text}, '|')",
             "array_agg(distinct {text})::text", "mode() within group (order by {text})"],
    "boolean": AGGREGATES["boolean"],
    "date": AGGREGATES["date"],
}  # fmt: skip
OVER = {
    "bigint": ["count(*)", "rank()", "dense_rank()", "sum({small})", "max({bigint})",
               "min({bigint})", "count({any})"],
    "double": ["percent_rank()", "cume_dist()", "max({double})"],
    "text": ["min({text})", "max({text})"],
    "boolean": ["bool_and({boolean})", "bool_or({boolean})"],
    "date": ["min({date})", "max({date})"],
}  # fmt: skip


class Nested(Generator):
    """self.columns: all that is seen; own: what the select at hand reads itself."""

    free = False  # recursive names stand in subqueries, too
    named = 0.2  # of the selects that may have a with

    def __init__(self, seed):
        super().__init__(seed)
        self.values = SMALL
        self.kinds, self.exact = KINDS, EXACT
        self.names = 0
        self.deep = 0  # selects that may still stand in each other
        self.ctes = []
        self.own = {}

    def likely(self, part):
        return self.chance.random() < part

    def name(self):
        self.names += 1
        return "x%d" % self.names

    # ---- expressions ----

    def leaf(self, kind):
        if self.deep > 0 and kind in EXACT and self.likely(0.12):
            return self.scalar_select(kind)
        return super().leaf(kind)

    def word(self, kind, depth):
        if kind == "small":
            small = [n for n in self.columns if n.endswith((".k", ".id", ".n"))]
            return self.pick(small or ["3::bigint"])
        return super().word(kind, depth)

    def of_own(self, form):
        """An aggregate or a window of the select's own columns, so that it is nobody else's."""
        seen, deep = self.columns, self.deep
        self.columns, self.deep = self.own, self.deep if self.likely(0.3) else 0
        text = self.fill(form, self.pick([0, 0, 1]))
        self.columns, self.deep = seen, deep
        return text

    def elsewhere(self, kind):
        """An aggregate of the select at hand, written in one within it."""
        deep, self.deep = self.deep, 0
        call = self.of_own(self.pick(self.exact[kind]))
        test = "count(%s) > 1" % self.pick(self.own)
        self.deep = deep
        return self.pick(
            ["(select %s)", "(select %s where %s)", "(select %s from b where %s limit 1)"]
        ).replace("%s", call, 1).replace("%s", test)

    def condition(self):
        """A condition on the select's rows: often on rows around it, or a subquery."""
        around = {n: k for n, k in self.columns.items() if n not in self.own}
        pairs = [(o, n) for o, kind in self.own.items() for n, k in around.items() if k == kind]
        if pairs and self.likely(0.7):
            sign = self.pick(["=", "=", "=", "<", ">=", "<>"])
            return (" %s " % sign).join(self.pick(pairs))
        if self.deep > 0 and self.likely(0.4):
            return self.of_select()
        return self.expression("boolean", self.pick([1, 2]))

    def inside(self, make):
        """make() for a select within the one at hand."""
        saved = self.columns, self.own, self.deep, list(self.ctes)
        self.deep -= 1
        text = make()
        self.columns, self.own, self.deep, self.ctes = saved
        return text

    def of_select(self):
        kind = self.pick([k for k in self.kinds if k != "double"])
        value = self.expression(kind, 1)
        rows = self.inside(lambda: self.select([kind], alone=False))
        return self.pick(
            ["exists (%(rows)s)", "not exists (%(rows)s)", "(%(value)s) in (%(rows)s)",
             "(%(value)s) not in (%(rows)s)", "(%(value)s) = any (%(rows)s)",
             "(%(value)s) <> all (%(rows)s)", "(%(value)s) >= all (%(rows)s)",
             "(%(value)s) < any (%(rows)s)", "(%(value)s) in ((%(rows)s) union all (%(rows)s))"]
        ) % {"rows": rows, "value": value}  # fmt: skip

    def scalar_select(self, kind):
        def make():
            if self.likely(0.4):
                return "(%s order by 1 limit 1)" % self.core([kind], plain=True)
            source = self.sources()
            text = self.of_own(self.pick(self.exact[kind]))
            return "(select %s from %s where %s)" % (text, source, self.condition())

        return self.inside(make)

    # ---- from ----

    def item(self):
        """(text, {column: kind}) of one table."""
        name = self.name()
        kinds = [self.pick(self.kinds) for _ in range(self.pick([1, 2, 3]))]
        if self.ctes and self.likely(0.35):
            cte, columns = self.pick(self.ctes)
            return "%s %s" % (cte, name), {name + "." + c: k for c, k in columns.items()}
        if self.deep > 0 and self.likely(0.3):
            text = self.inside(lambda: self.hidden(lambda: self.select(kinds)))
            names = ["c%d" % i for i in range(len(kinds))]
            return (
                "(%s) %s(%s)" % (text, name, ", ".join(names)),
                {name + "." + c: k for c, k in zip(names, kinds)},
            )
        if self.likely(0.06):
            step = self.pick([331, 499, 997])
            text = SERIES % (step, self.pick([1, 2])) + " " + name
            return text, {name + ".n": "bigint", name + ".k": "bigint"}
        table = self.pick(TABLES)
        return "%s %s" % (table, name), {name + "." + c: k for c, k in TABLES[table].items()}

    def hidden(self, make):
        """An item of `from` does not see the tables beside it, but the query around."""
        self.columns = {n: k for n, k in self.columns.items() if n not in self.own}
        self.own = {}
        return make()

    def sources(self):
        self.own = {}
        text, own = self.item()
        self.see(own)
        for _ in range(self.pick([0, 0, 1, 1, 2])):
            text += self.join()
        return text

    def see(self, own):
        self.own = dict(self.own, **own)
        self.columns = dict(self.columns, **own)

    def join(self):
        if self.deep > 0 and self.likely(0.35):
            kinds = [self.pick(self.kinds) for _ in range(self.pick([1, 2]))]
            rows = self.inside(lambda: self.lateral(kinds))
            name = self.name()
            names = ["c%d" % i for i in range(len(kinds))]
            self.see({name + "." + c: k for c, k in zip(names, kinds)})
            text = "lateral (%s) %s(%s)" % (rows, name, ", ".join(names))
            return self.pick([" cross join %s", " left join %s on true", " join %s on true"]) % text
        left = dict(self.own)
        text, right = self.item()
        self.see(right)
        kind = self.pick(["join", "join", "left join", "right join", "full join", "cross join"])
        if kind == "cross join":
            return " cross join " + text
        pairs = [(a, b) for a, x in left.items() for b, y in right.items() if x == y]
        equal = "%s = %s" % self.pick(pairs) if pairs else "true"
        if kind == "full join":
            return " full join %s on %s" % (text, equal) if pairs else " cross join " + text
        return " %s %s on %s%s" % (kind, text, equal, self.more_on())

    def more_on(self):
        if self.likely(0.7):
            return ""
        return self.pick([" and ", " or "]) + "(%s)" % self.of_own("{boolean}")

    def lateral(self, kinds):
        """Its columns around are those left of it, too."""
        self.own = {}
        return self.select(kinds)

    # ---- selects ----

    def core(self, kinds, plain=False):
        source = self.sources()
        where = " where " + self.condition() if self.likely(0.6) else ""
        if not plain and self.likely(0.3):
            return self.grouped(kinds, source, where)
        cells = [self.cell(k, plain) for k in kinds]
        distinct = "distinct " if not plain and self.likely(0.15) else ""
        return "select %s%s from %s%s" % (distinct, ", ".join(cells), source, where)

    def cell(self, kind, plain):
        if not plain and kind in OVER and self.likely(0.12):
            window = self.pick(["partition by %s order by %s", "order by %s, %s"]) % (
                self.pick(self.own), self.pick(self.own))  # fmt: skip
            call = self.of_own(self.pick(OVER[kind]))
            return "(%s over (%s))::%s" % (call, window, CAST.get(kind, kind))
        return self.expression(kind, self.pick([0, 1, 1, 2]))

    def grouped(self, kinds, source, where):
        keys = [self.pick(list(self.own)) for _ in range(self.pick([0, 1, 1, 2]))]
        keys = list(dict.fromkeys(keys))
        cells, seen, own = [], self.columns, self.own
        whole = {}  # keys that are expressions, which stand in the list as they are
        if keys and self.likely(0.3):
            kind = self.pick(kinds)
            whole[kind] = "(%s)" % self.of_own("{%s}" % kind)
        for kind in kinds:
            if kind in whole and self.likely(0.6):
                cells.append(whole[kind])
            elif self.likely(0.6) or not keys:
                self.columns, self.own = seen, own
                cells.append(self.of_own(self.pick(self.exact[kind])))
                if self.likely(0.15):
                    cells[-1] = self.elsewhere(kind)
            else:  # of keys, and of the query around
                around = {n: k for n, k in seen.items() if n not in own}
                self.columns = dict(around, **{n: own[n] for n in keys})
                self.own = {n: own[n] for n in keys}
                cells.append(self.expression(kind, 1))
        self.columns, self.own = seen, own
        text = "select %s from %s%s" % (", ".join(cells), source, where)
        keys += whole.values()
        if keys and self.likely(0.2) and not whole:
            text += " group by " + self.pick(["rollup (%s)", "cube (%s)"]) % ", ".join(keys)
        elif keys:
            text += " group by " + ", ".join(keys)
        if self.likely(0.25):
            text += " having " + self.of_own(
                self.pick(["count(*) > 1", "max({bigint}) > 2", "bool_or({boolean})"])
            )
        return text

    def select(self, kinds, alone=True):
        if alone and self.deep > 0 and self.likely(self.named):
            text = self.with_names(kinds)
        elif self.deep > 0 and self.likely(0.15):
            sets = self.pick(["union", "union all", "intersect", "except", "except all"])
            seen = self.columns
            left = self.core(kinds)
            self.columns = seen
            text = "%s %s %s" % (left, sets, self.core(kinds))
            self.columns = seen
        else:
            seen = self.columns
            text = self.core(kinds)
            self.columns = seen
        if self.likely(0.15):
            text = "select * from (%s) %s order by %s limit %d" % (
                text,
                self.name(),
                ", ".join(str(i + 1) for i in range(len(kinds))),
                self.pick([1, 2, 5]),
            )
        return text

    def with_names(self, kinds):
        before = list(self.ctes)
        name = self.name()
        held = [self.pick(self.kinds) for _ in range(self.pick([1, 2]))]
        recursive = self.likely(0.5)
        names = ["c%d" % i for i in range(len(held))]
        if recursive:
            text, columns = self.recursive(name, held)
        else:
            text = self.inside(lambda: self.hidden(lambda: self.select(held)))
            columns = dict(zip(names, held))
        text = "with %s%s(%s) as (%s) " % (
            "recursive " if recursive else "",
            name,
            ", ".join(columns),
            text,
        )
        self.ctes.append((name, columns))
        self.deep -= 1
        text += self.select(kinds, alone=False)
        self.deep += 1
        self.ctes = before
        return text

    def cast(self, kind):
        return "(%s)::%s" % (self.expression(kind, 1), CAST.get(kind, kind))

    def recursive(self, name, held):
        columns = dict({"n": "bigint"}, **{"c%d" % i: k for i, k in enumerate(held)})

        def make():
            self.hidden(lambda: None)
            seen = dict(self.columns)
            first = [self.cast(k) for k in held]
            q = self.name()
            own = {"%s.%s" % (q, c): k for c, k in columns.items()}
            self.see(own)
            if self.free:
                self.ctes.append((name, columns))
            source = "%s %s" % (name, q)
            if self.likely(0.5):
                source += self.join()
                source = source.replace(" right join ", " join ").replace(" full join ", " join ")
                source = source.replace(" left join ", " join ")
            step = ", ".join(self.cast(k) for k in held)
            more = " and " + self.condition() if self.likely(0.5) else ""
            text = "select 1::bigint, %s union %sselect %s.n + 1, %s from %s where %s.n < %d%s" % (
                ", ".join(first),
                self.pick(["", "all "]),
                q,
                step,
                source,
                q,
                self.pick([2, 3]),
                more,
            )
            self.columns = seen
            return text

        return self.inside(make), columns

    # ---- whole ones ----

    def begin_nested(self):
        self.columns, self.own, self.ctes, self.names = {}, {}, [], 0
        self.deep = self.pick([1, 2, 2, 3])

    def statement(self):
        """(text, is it ordered)"""
        self.begin_nested()
        kinds = [self.pick(self.kinds) for _ in range(self.pick([1, 2, 3]))]
        text = self.select(kinds)
        order = ", ".join(str(i + 1) for i in range(len(kinds)))
        return "select * from (%s) whole order by %s limit 200" % (text, order), True

    def parted(self):
        """Statements that must give the same rows, and how: [(what, one, other)]."""
        self.begin_nested()
        source = self.sources()
        cells = ", ".join(self.pick(list(self.own)) for _ in range(3))
        p = self.condition() if self.likely(0.3) else self.expression("boolean", 2)
        keys = self.pick(list(self.own))
        h = self.of_own(self.pick(["max({bigint}) > 2", "count({any}) > 1", "min({text}) > 'a'",
                                   "bool_or({boolean})"]))  # fmt: skip
        three = ("(%s)", "not (%s)", "(%s) is null")
        rows = "select %s from %s" % (cells, source)
        groups = "select %s, count(*) from %s group by 1" % (keys, source)
        return [
            ("where", rows, " union all ".join(rows + " where " + t % p for t in three)),
            ("having", groups, " union all ".join(groups + " having " + t % h for t in three)),
            (
                "count",
                "select count(*) from %s where %s" % (source, p),
                "select coalesce(sum(case when %s then 1 else 0 end), 0) from %s" % (p, source),
            ),
            (
                "list",
                "select %s from %s where %s" % (cells, source, p),
                "select %s from (select %s, (%s) as p from %s) q where p"
                % (", ".join("y%d" % i for i in range(3)),
                   ", ".join("%s as y%d" % (c, i) for i, c in enumerate(cells.split(", "))),
                   p, source),
            ),
        ]  # fmt: skip


class Plain(Nested):
    """Of whole numbers, texts and truth alone, as every engine has them; names of recursive selects
    may be read in their subqueries, too, which DuckDB takes."""

    FORMS = {
        "bigint": ["{bigint} + 1", "{bigint} - {bigint}", "coalesce({bigint}, {bigint})",
                   "case when {boolean} then {bigint} else {bigint} end", "abs({bigint})",
                   "nullif({bigint}, {bigint})", "length({text})", "greatest({bigint}, {bigint})"],
        "text": ["upper({text})", "coalesce({text}, {text})", "{text} || {text}",
                 "case when {boolean} then {text} end", "nullif({text}, {text})"],
        "boolean": ["{bigint} = {bigint}", "{bigint} < {bigint}", "{text} = {text}",
                    "{text} >= {text}", "{bigint} is null", "{text} is not null", "not {boolean}",
                    "({boolean} and {boolean})", "({boolean} or {boolean})",
                    "{bigint} in ({number}, 2, null)", "{bigint} not in ({number}, 3)",
                    "{bigint} between {bigint} and {bigint}", "{bigint} is distinct from {bigint}"],
    }  # fmt: skip

    free, named = True, 0.5

    def __init__(self, seed):
        super().__init__(seed)
        self.kinds = ["bigint", "bigint", "bigint", "text", "boolean"]
        self.exact = {
            "bigint": [f for f in EXACT["bigint"] if not f.startswith(("bit", "percentile"))],
            "text": ["min({text})", "max({text})"],
            "boolean": ["bool_and({boolean})", "bool_or({boolean})"],
        }

    def forms(self, kind):
        return self.FORMS[kind]

    def item(self):
        text, columns = super().item()
        return text, {n: k for n, k in columns.items() if k in self.FORMS}

    def word(self, kind, depth):
        return self.leaf(self.pick(self.kinds)) if kind == "any" else super().word(kind, depth)

    def literal(self, kind):
        values = {"bigint": "01237", "text": ["''", "'a'", "'B'"], "boolean": ["true", "false"]}
        if kind not in values or not self.deep:
            return super().literal(kind)
        null = self.likely(0.1)
        return "%s::%s" % (NULL if null else self.pick(values[kind]), kind)
