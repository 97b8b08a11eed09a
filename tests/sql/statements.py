# SPDX-License-Identifier: Apache-2.0
"""Statements by chance, of what docs/sql.md says is understood, and the tables that they read.

Literals have casts wherever PostgreSQL would take another width of integer, or numeric, than we
have (docs/sql.md, "Not as in PostgreSQL").  What may fail stands in the list of a select without a
where, so that no order of evaluation decides whether it does.
"""
import random

from forms import AGGREGATES, BOLD, OTHERS, SAFE, VALUES, WORDS

NULL = "null"
# Texts that any type is asked to read; times are never infinite here.
LITERALS = OTHERS["odd"] + [
    value for kind in ("text", "timestamp", "date", "interval") for value in VALUES[kind]
]
SMALL = dict(
    VALUES, bigint=VALUES["bigint"][:10], double=[v for v in VALUES["double"] if v != "1e300"]
)
CAST = {"double": "float8"}
COLUMNS = {
    "i": "bigint", "k": "bigint", "d": "double", "t": "text", "b": "boolean", "ts": "timestamp",
    "dt": "date", "iv": "interval"}  # fmt: skip
WINDOWS, BOUNDS = OTHERS["window"], OTHERS["bound"]
EXCLUDE = ["", "", ""] + [" exclude " + w for w in ("current row", "group", "ties", "no others")]


class Generator:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.values = VALUES
        self.columns = {}
        self.bold = False

    def pick(self, things):
        return self.chance.choice(list(things))

    def literal(self, kind):
        # PostgreSQL does not compute what stands beside a constant NULL, so it may not fail.
        null = self.chance.random() < 0.12 and not (self.bold and self.columns)
        value = NULL if null else self.pick(self.values[kind])
        return "%s::%s" % (value, CAST.get(kind, kind))

    def leaf(self, kind):
        names = [n for n, k in self.columns.items() if k == kind]
        if names and self.chance.random() < 0.75:
            return self.pick(names)
        return self.literal(kind)

    def expression(self, kind, depth=2):
        if depth == 0 or self.chance.random() < 0.2:
            return self.leaf(kind)
        return self.fill(self.pick(self.forms(kind)), depth - 1)

    def forms(self, kind):
        return SAFE[kind] + (BOLD[kind] * 2 if self.bold else [])

    def fill(self, form, depth):
        """`form` with an expression for each {kind} in it."""
        out, rest, last = "", form, ""
        while "{" in rest:
            before, rest = rest.split("{", 1)
            if len(rest) > 1 and rest[0].isdigit():  # a regular expression's {3}
                out += before + "{"
                continue
            kind, rest = rest.split("}", 1)
            if kind != "same":
                last = self.word(kind, depth)
            out += before + last
        return out + rest

    def word(self, kind, depth):
        if kind in WORDS:
            return self.pick(WORDS[kind])
        if kind == "literal":
            return self.pick(LITERALS)
        if kind in ("number", "string"):
            return self.leaf("bigint" if kind == "number" else "text")
        if kind == "any":
            return self.leaf(self.pick(SAFE))
        if kind == "small":
            return self.pick([n for n in self.columns if n.endswith("k")] or ["3::bigint"])
        if kind == "finite":
            return "(%s / 4::float8)" % self.word("small", 0)
        text = self.expression(kind, depth)
        return text if text.replace(".", "").isalnum() else "(%s)" % text

    # ---- statements: (text, is it ordered wholly) ----

    def scalar(self):
        self.columns, self.bold, self.values = {}, True, VALUES
        return "select " + self.expression(self.pick(SAFE), 2), False

    def begin(self, alias=""):
        self.bold, self.values = False, SMALL
        self.columns = {alias + n: k for n, k in COLUMNS.items()}

    def ordered(self, text, columns, may_limit=True):
        """By all columns, each in some direction, and a piece of it."""
        order = list(range(1, columns + 1))
        self.chance.shuffle(order)
        text += " order by " + ", ".join(
            "%d%s%s"
            % (c, self.pick(["", " asc", " desc"]), self.pick(["", " nulls first", " nulls last"]))
            for c in order
        )
        if may_limit and self.chance.random() < 0.3:
            text += self.pick(
                [
                    " limit %d",
                    " offset %d",
                    " limit 7 offset %d",
                    " fetch first %d rows only",
                    " offset %d rows fetch next 3 rows only",
                    " fetch first %d rows with ties",
                ]
            ) % self.pick(range(1, 9))
        return text, True

    def where(self):
        return " where " + self.expression("boolean", 2) if self.chance.random() < 0.4 else ""

    def some(self, n=3, depth=2):
        return [self.expression(self.pick(SAFE), depth) for _ in range(self.pick(range(1, n + 1)))]

    def rows(self):
        self.begin()
        if self.chance.random() < 0.4:
            self.bold = True
            return "select %s from a" % ", ".join(self.some(2)), False
        found = self.some()
        return self.ordered(
            "select %s%s from a%s"
            % (self.pick(["", "", "distinct "]), ", ".join(found), self.where()),
            len(found),
        )

    def grouped(self):
        self.begin()
        keys = [self.expression(self.pick(SAFE), 1) for _ in range(self.pick([0, 1, 1, 2]))]
        found = [
            self.fill(self.pick(AGGREGATES[self.pick(AGGREGATES)]), 1)
            for _ in range(self.pick([1, 2, 3]))
        ]
        text = "select %s from a%s" % (", ".join(keys + found), self.where())
        if keys and self.chance.random() < 0.4:
            # In a set the keys are columns: PostgreSQL takes constants and equal keys apart.
            names = self.chance.sample(["b", "k", "t", "dt"], len(keys))
            text = text.replace("select " + ", ".join(keys), "select " + ", ".join(names), 1)
            text += self.grouping_sets(names)
            found.append("grouping(%s)" % ", ".join(self.chance.sample(names, len(names))))
            text = text.replace(" from a", ", %s from a" % found[-1], 1)
        elif keys:
            text += " group by " + ", ".join(str(i + 1) for i in range(len(keys)))
        if self.chance.random() < 0.25:
            text += " having " + self.fill(
                self.pick(
                    [
                        "count(*) > 1",
                        "max({bigint}) > 2",
                        "bool_or({boolean})",
                        "sum({small}) is not null",
                    ]
                ),
                1,
            )
        if any("stddev" in f or "var" in f or "corr" in f or "regr" in f for f in found):
            return text, False  # their last digits would be the order
        return self.ordered(text, len(keys + found))

    def grouping_sets(self, names):
        a, b = names[0], names[-1]
        return " group by " + self.pick([
            "rollup (%s)" % ", ".join(names), "cube (%s)" % ", ".join(names),
            "grouping sets ((%s), (), (%s), ())" % (", ".join(names), a),
            "%s, rollup (%s)" % (a, b), "rollup (%s), cube (%s)" % (a, b),
            "grouping sets (%s, rollup (%s), (%s, %s))" % (a, b, b, a),
            "distinct rollup (%s), rollup (%s, %s)" % (a, a, b)])  # fmt: skip

    def frame(self):
        if self.chance.random() < 0.5:
            return ""
        first, last = sorted(self.chance.choices(range(5), k=2))
        first, last = min(first, 3), max(last, 1)
        return " %s between %s and %s%s" % (
            self.pick(["rows", "groups", "range"]),
            self.fill(BOUNDS[first], 0),
            self.fill(BOUNDS[last], 0),
            self.pick(EXCLUDE),
        )

    def window(self):
        self.begin()
        partition = self.pick(
            ["", "", "partition by b ", "partition by k %% 2::bigint ".replace("%%", "%")]
        )
        frame = self.frame()
        order = self.pick(
            ["id", "k", "k desc", "k nulls first"]
            if "range" in frame
            else ["id", "id desc", "k, id", "t, id", "d desc, id", "ts nulls first, id", "iv, id"]
        )
        over = "(%sorder by %s%s)" % (partition, order, frame)
        tied = order.split()[0] == "k" and ", id" not in order
        forms = [
            w
            for w in WINDOWS
            if not tied
            or w.startswith(
                ("rank", "dense", "percent", "cume", "sum", "avg", "count", "min", "max", "bool")
            )
        ]
        found = []
        for _ in range(self.pick([1, 2, 3])):
            call = self.fill(self.pick(forms), 1)
            found.append("%s over w" % call)
        return "select id, %s from a window w as %s order by 1" % (", ".join(found), over), True

    def joined(self):
        self.begin("a.")
        self.columns.update({"b." + n: k for n, k in COLUMNS.items()})
        kind = self.pick(
            [
                "join",
                "left join",
                "right join",
                "full join",
                "cross join",
                "natural",
                "using",
                "lateral",
            ]
        )
        found = self.some(3, 1)
        if kind == "cross join":
            source = "a cross join b"
        elif kind == "natural":
            source = (
                "(select k, t from a) a natural %s join (select k, b as y from b) b"
                % self.pick(["inner", "left", "right", "full"])
            )
            found = ["*"]
        elif kind == "using":
            names = self.pick(["k", "t", "k, t", "b", "k, b, t"])
            source = "a %s join b using (%s)" % (
                self.pick(["inner", "left", "right", "full"]),
                names,
            )
            found += [n for n in names.split(", ")]
        elif kind == "lateral":
            source = (
                "a %s join lateral (select %s as x, %s as y from b where b.k = a.k %s) l on true"
                % (
                    self.pick(["left", "inner"]),
                    self.expression(self.pick(SAFE), 1),
                    self.pick(["b.id", "count(*) over ()"]),
                    self.pick(["", "and b.id < 9", "order by b.id limit 2", "or a.b"]),
                )
            )
            self.columns = {n: k for n, k in self.columns.items() if n.startswith("a.")}
            found = self.some(2, 1) + ["l.x", "l.y"]
        else:
            condition = self.pick(
                [
                    "a.k = b.k",
                    "a.t = b.t",
                    "a.k = b.k and a.b = b.b",
                    "a.d = b.d",
                    "a.dt = b.dt",
                    "a.k is not distinct from b.k",
                ]
            )
            if kind == "full join":
                condition = "a.k = b.k"
            if kind != "full join" and self.chance.random() < 0.4:
                condition += self.pick([" and ", " or "]) + self.expression("boolean", 1)
            source = "a %s b on %s" % (kind, condition)
        text = "select %s from %s%s" % (
            ", ".join(found),
            source,
            self.where() if kind not in ("natural", "lateral") else "",
        )
        return self.ordered(text, 3 if found == ["*"] else len(found))

    def united(self):
        self.begin()
        kinds = [self.pick(SAFE) for _ in range(self.pick([1, 2]))]
        parts = [
            "select %s from %s%s"
            % (", ".join(self.expression(k, 1) for k in kinds), self.pick("ab"), self.where())
            for _ in range(self.pick([2, 2, 3]))
        ]
        text = parts[0]
        for part in parts[1:]:
            text += " %s%s %s" % (
                self.pick(["union", "intersect", "except"]),
                self.pick(["", " all"]),
                part,
            )
        return self.ordered(text, len(kinds))

    def subquery(self):
        self.begin("a.")
        value = self.expression("bigint", 1)
        inner = self.pick(["k", "b.k + a.k", "id", "b.k % 3::bigint"])
        where = self.pick(
            ["", " where b.k = a.k", " where b.id < a.k", " where b.t = a.t", " where b.b is null"]
        )
        condition = self.pick(
            [
                "%s in (select %s from b%s)",
                "%s not in (select %s from b%s)",
                "%s = any (select %s from b%s)",
                "%s <> all (select %s from b%s)",
                "%s > any (select %s from b%s)",
                "%s <= all (select %s from b%s)",
                "%s = (select max(%s) from b%s)",
                "%s < (select count(%s) from b%s)",
                "exists (select 1 where %s > 0) and exists (select %s from b%s)",
                "coalesce(%s, 0) >= 0 and not exists (select %s from b%s)",
            ]
        ) % (value, inner, where)
        if self.chance.random() < 0.5:
            return self.ordered("select id, (%s) from a" % condition, 2)
        return self.ordered("select id from a where " + condition, 1)

    def with_queries(self):
        self.begin()
        if self.chance.random() < 0.4:
            step = self.pick(["n + 1", "n * 2 + 1", "n + 3"])
            stop = self.pick(["n < 20", "n < 7", "n < 1"])
            return self.ordered(
                "with recursive r(n, t) as (select %s::bigint, 'x'::text union %s "
                "select %s, t || 'y' "
                "from r where %s) select n, length(t) from r"
                % (self.pick("0123"), self.pick(["", "all"]), step, stop),
                2,
            )
        found = self.some(2, 1)
        names = ["c%d" % i for i in range(len(found))]
        return self.ordered(
            "with x(%s) as (select %s from a%s), y as (select *, count(*) as n from x group by %s) "
            "select * from y"
            % (", ".join(names), ", ".join(found), self.where(), ", ".join(names)),
            len(names) + 1,
        )

    def statement(self):
        kinds = [self.scalar] * 4 + [
            self.rows,
            self.rows,
            self.grouped,
            self.grouped,
            self.window,
            self.window,
            self.joined,
            self.united,
            self.subquery,
            self.with_queries,
        ]
        return self.pick(kinds)()

    def table(self, n):
        """A select that gives the rows of a table."""
        self.values = SMALL
        lines = []
        for i in range(n):
            cells = ["%d::bigint" % i] + [
                (
                    NULL + "::bigint"
                    if n == "k" and self.chance.random() < 0.15
                    else (
                        "%d::bigint" % self.chance.randrange(-2, 6) if n == "k" else self.literal(k)
                    )
                )
                for n, k in COLUMNS.items()
            ]
            lines.append("(%s)" % ", ".join(cells))
        return "select * from (values %s) v(id, %s)" % (", ".join(lines), ", ".join(COLUMNS))
