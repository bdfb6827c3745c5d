"""Random views over tables with declared keys and references, and histories that keep these promises.

Tables form a random graph of references. Changes insert, delete and update rows: what is deleted is referred to by
nothing that stays; what is inserted refers to rows that are there. Updates are of any column but the key, so some of
them are exposed: a guard must find these, and then the view is recomputed, as propagate does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from deferred.algebra.operators import Aggregate
from deferred.algebra.operators.in_view import shared_rows
from deferred.algebra.operators.project import signed
from deferred.algebra.operators.promised_join import PromisedJoin
from deferred.algebra.plan import Plan
from deferred.algebra.program import DUPLICATE, EXPOSED, Guard
from deferred.algebra.relevance import Dialect, relevance_of
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.selfmaintenance.autonomous import Autonomous
from deferred.algebra.selfmaintenance.containment import PREFIX, Portion, Shared, over_shared, portions
from deferred.errors import DeferredError
from tests.fuzz.case import Row
from tests.fuzz.check import Failure, Refused, Skipped
from tests.fuzz.duck import CannotRun, Database, added

NAMES = ("f", "g", "h", "k")
TEXTS = (None, "x", "y", "z")

State = dict[str, list[Row]]


@dataclass
class Tables:
    """Four tables: each with a key `id`, references to tables after it, two numbers and a text."""

    references: dict[str, dict[str, str]]

    @staticmethod
    def drawn(random: Random) -> Tables:
        found: dict[str, dict[str, str]] = {}
        for i, name in enumerate(NAMES):
            later = NAMES[i + 1 :]
            found[name] = {f"{other}_id": f"{other}.id" for other in later if random.random() < 0.6}
        return Tables(found)

    @property
    def schemas(self) -> dict[str, tuple[tuple[str, str], ...]]:
        own = (("a", "int"), ("b", "int"), ("s", "string"))
        return {name: (("id", "int"), *((fk, "int") for fk in self.references[name]), *own) for name in NAMES}

    def declared(self, random: Random) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]]]:
        """Most of the keys and references that the rows keep: what is not declared must not be relied on."""
        keys = {name: ("id",) for name in NAMES if random.random() < 0.9}
        kept = {
            name: {fk: target for fk, target in fks.items() if random.random() < 0.85}
            for name, fks in self.references.items()
        }
        return keys, kept

    def promises(self, random: Random) -> Promises:
        return Promises.of(*self.declared(random))

    def row(self, random: Random, name: str, key: int, state: State) -> Row:
        fks = [_key_of(random, state[target.partition(".")[0]]) for target in self.references[name].values()]
        return (key, *fks, random.choice((None, 0, 1, 2)), random.choice((0, 1, 2)), random.choice(TEXTS))

    def filled(self, random: Random) -> State:
        state: State = {name: [] for name in NAMES}
        for name in reversed(NAMES):
            for key in random.sample(range(12), random.randint(0, 7)):
                state[name].append(self.row(random, name, key, state))
        return state

    def changed(self, random: Random, state: State, inserted: Sequence[int] = (0, 0, 1, 2)) -> State:
        """Another state that keeps the promises; `inserted` are numbers of inserted rows to choose from."""
        new = {name: list(rows) for name, rows in state.items()}
        for name in reversed(NAMES):  # what is referred to comes first
            for _ in range(random.choice(inserted)):
                free = sorted(set(range(14)) - {row[0] for row in new[name]})
                if free:
                    new[name].append(self.row(random, name, random.choice(free), new))
            for i, row in enumerate(new[name]):
                if random.random() < 0.2:
                    new[name][i] = self._updated(random, name, row, new)
        for name in NAMES:  # what refers goes first
            used = {
                row[1 + place]
                for other in NAMES
                for place, target in enumerate(self.references[other].values())
                if target == f"{name}.id"
                for row in new[other]
            }
            new[name] = [row for row in new[name] if row[0] in used or random.random() > 0.2]
        return new

    def orphaned(self, random: Random, state: State) -> tuple[str, State]:
        """A state with one more row that refers into nothing, and the table to which it refers; where that is possible."""
        ways = [(name, n, target) for name in NAMES for n, target in enumerate(self.references[name].values())]
        if not ways:
            return "", state
        name, place, target = random.choice(ways)
        other = target.partition(".")[0]
        missing = sorted(set(range(20)) - {row[0] for row in state[other]})
        free = sorted(set(range(20)) - {row[0] for row in state[name]})
        row = self.row(random, name, random.choice(free), state)
        row = (*row[: 1 + place], random.choice(missing), *row[2 + place :])
        return other, {**state, name: [*state[name], _meeting_all(row)]}

    def late(self, random: Random, name: str, state: State) -> State:
        """A state with rows of a table for the keys to which rows refer without it."""
        places = [
            (other, 1 + n)
            for other in NAMES
            for n, target in enumerate(self.references[other].values())
            if target == f"{name}.id"
        ]
        wanted = {row[place] for other, place in places for row in state[other]} - {None}
        new = [self.row(random, name, key, state) for key in sorted(wanted - {row[0] for row in state[name]})]
        return {**state, name: [*state[name], *map(_meeting_all, new)]}

    def of_the_same_keys(self, random: Random, name: str, state: State) -> list[Row]:
        """Other rows with keys that rows of a table have, some of them copies of these."""
        some = [row for row in state[name] if random.random() < 0.5]
        return [row if random.random() < 0.3 else self._updated(random, name, row, state) for row in some]

    def _updated(self, random: Random, name: str, row: Row, state: State) -> Row:
        """A row with another value in one column that is not its key."""
        place = random.choice([*range(1, len(row)), len(row) - 1, len(row) - 2])
        other = self.row(random, name, row[0], state)
        return (*row[:place], other[place], *row[place + 1 :])


def _meeting_all(row: Row) -> Row:
    """A row that meets all conditions that a query may have on one table."""
    return (*row[:-3], 1, 1, "x")


def _key_of(random: Random, rows: list[Row]) -> int | None:
    return None if not rows or random.random() < 0.1 else random.choice(rows)[0]


def query(random: Random, tables: Tables) -> str:
    """A view that joins some tables, most often along their references, in one of many forms."""
    first = random.choice(NAMES[:2])
    joined = [("t0", first)]
    text = f"{first} t0"
    conditions: list[str] = []
    for number in range(1, random.choice((1, 2, 2, 3, 3, 4))):
        alias = f"t{number}"
        ways = [
            (here, fk, target.partition(".")[0])
            for here, table in joined
            for fk, target in tables.references[table].items()
        ]
        roll = random.random()
        if ways and roll < 0.85:
            here, fk, other = random.choice(ways)
            on = f"{here}.{fk} = {alias}.id"
        else:
            here, _ = random.choice(joined)
            other = random.choice(NAMES)
            on = random.choice((f"{here}.a = {alias}.a", f"{here}.id = {alias}.b", f"{here}.id = {alias}.id"))
        kind = "JOIN" if random.random() < 0.92 else "LEFT JOIN"
        text += f" {kind} {other} {alias} ON {on}"
        joined.append((alias, other))
    for alias, _ in joined:
        if random.random() < 0.35:
            conditions.append(
                random.choice((f"{alias}.a = 1", f"{alias}.b > 0", f"{alias}.s = 'x'", f"{alias}.a <= 1"))
            )
    if len(joined) > 1 and random.random() < 0.1:
        conditions.append(f"{joined[0][0]}.b <= {joined[-1][0]}.b")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = [
        f"{alias}.{name}" for alias, table in joined for name in ("id", *tables.references[table], "a", "b", "s")
    ]
    return _selected(random, columns, [alias for alias, _ in joined], f" FROM {text}{where}")


def _selected(random: Random, columns: list[str], aliases: list[str], rest: str) -> str:
    form = random.random()

    def named(chosen: list[str]) -> str:
        return ", ".join(f"{c} AS o{i}" for i, c in enumerate(chosen))

    if form < 0.3:  # everything, or nearly so: the view shows the rows of its tables
        chosen = [c for c in columns if random.random() < 0.9] or columns[:1]
        return f"SELECT {named(chosen)}{rest}"
    chosen = random.sample(columns, random.randint(1, min(3, len(columns))))
    if form < 0.5:
        computed = f", {random.choice(aliases)}.b + 1 AS c" if random.random() < 0.4 else ""
        return f"SELECT {named(chosen)}{computed}{rest}"
    if form < 0.55:
        return f"SELECT DISTINCT {named(chosen)}{rest}"
    totals = {"SUM(%s.b) AS x", "COUNT(*) AS n", "MIN(%s.a) AS low", "COUNT(%s.a) AS c", "AVG(%s.b) AS mean"}
    calls = [
        t % random.choice(aliases) if "%s" in t else t for t in random.sample(sorted(totals), random.randint(1, 3))
    ]
    if form < 0.62:
        return f"SELECT {', '.join(calls)}{rest}"
    keys = ", ".join(chosen)
    return f"SELECT {named(chosen)}, {', '.join(calls)}{rest} GROUP BY {keys}"


@dataclass
class Seen:
    """What a run has met."""

    views: int = 0
    refused: int = 0
    steps: int = 0
    exposed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def check(seed: int, seen: Seen, steps: int = 2) -> None:
    """One random view through a random history, maintained without base tables; raises Failure where it is wrong."""
    random = Random(seed)
    tables = Tables.drawn(random)
    promises, sql = tables.promises(random), query(random, tables)
    db = Database(tables.schemas)
    try:
        _check(db, tables, promises, sql, random, seen, steps)
    except Failure as failure:
        failure.evidence += f"\nseed {seed}: {sql}\nreferences {tables.references}\npromises {promises}"
        raise
    finally:
        db.close()


def _check(db: Database, tables: Tables, promises: Promises, sql: str, random: Random, seen: Seen, steps: int) -> None:
    state = tables.filled(random)
    for name, rows in state.items():
        db.replace(name, Counter(rows))
    try:
        shown = db.query(sql)
        bound = db.bind(sql, promises=promises)
    except CannotRun as error:
        raise Skipped(str(error)) from None
    except DeferredError as error:
        raise Refused(str(error)) from None
    shared = _shared(random, bound.plan, tables) if random.random() < 0.4 else {}
    if shared:
        places = {name: Shared(name, portion) for name, portion in shared.items()}
        types = {f"{PREFIX}{c}": t for name in NAMES for c, t in tables.schemas[name]}
        bound = replace(bound, plan=over_shared(bound.plan, places), types={**bound.types, **types})
    seen.views += 1
    seen.kinds["shared"] += bool(shared)
    seen.kinds.update({type(node).__name__ for node in bound.plan.walk()})
    joins = [node for node in bound.plan.walk() if isinstance(node, PromisedJoin)]
    seen.kinds["aggregated first"] += any(isinstance(part, Aggregate) for join in joins for part in join.inputs)
    _expect("plan", db.evaluate(bound), shown, "")
    db.keep(bound)
    relevance = relevance_of(bound.plan, bound.types, Dialect(ansi=True)) if random.random() < 0.3 else {}
    logs_of_all = random.random() < 0.8  # one program for all steps, which is written once
    for _ in range(steps if logs_of_all else 1):
        db.show(bound)
        for name, portion in shared.items():
            db.put(shared_rows(name, ()).name, signed(portion.plan))
        new = tables.changed(random, state)
        changed = [name for name in NAMES if logs_of_all or Counter(new[name]) != Counter(state[name])]
        for name in changed:
            net = Counter(new[name])
            net.subtract(Counter(state[name]))
            db.log(name, net)
            db.replace(name, Counter(new[name]))
            condition = relevance[name].condition if name in relevance else None
            if condition is not None:
                db.drop_from_log(name, condition)
        where = f"{state} → {new}"
        state, fresh = new, db.query(sql)
        with db.out_of_reach():
            delta = db.preview(bound, changed)
            found = db.guarded(bound, changed)
            db.move(bound, changed)
        _judge(found, seen, where)
        if found:
            db.keep(bound)
        else:
            _expect("delta", added(shown, delta), fresh, where)
            for name, (kept, right) in db.wrong_support_tables(bound).items():
                _expect("support", kept, right, f"{name}: {where}")
        seen.steps += 1
        shown = fresh


def check_late(seed: int, seen: Seen) -> None:
    """A random view over tables of which a row refers into nothing; the row that it wants may come later.

    A guard notices it, then or at once, or the view is right all the same. Nothing is lost without a word.
    """
    random = Random(seed)
    tables = Tables.drawn(random)
    promises, sql = tables.promises(random), query(random, tables)
    db = Database(tables.schemas)
    try:
        state = tables.filled(random)
        for name, rows in state.items():
            db.replace(name, Counter(rows))
        bound = db.bind(sql, promises=promises)
    except (CannotRun, DeferredError) as error:
        db.close()
        raise Skipped(str(error)) from None
    seen.views += 1
    seen.kinds.update({type(node).__name__ for node in bound.plan.walk()})
    db.keep(bound)
    other, orphaned = tables.orphaned(random, state)
    between = tables.changed(random, orphaned) if random.random() < 0.3 else orphaned
    for new in (orphaned, between, tables.late(random, other, between) if other else between):
        shown = db.query(sql)
        db.show(bound)
        for name in NAMES:
            net = Counter(new[name])
            net.subtract(Counter(state[name]))
            db.log(name, net)
            db.replace(name, Counter(new[name]))
        where = f"seed {seed}: {sql}\nreferences {tables.references}\n{state} → {new}"
        state, fresh = new, db.query(sql)
        with db.out_of_reach():
            delta = db.preview(bound, NAMES)
            found = db.guarded(bound, NAMES)
            seen.kinds.update({guard.kind for guard, _ in found})
            if found:
                break
            db.move(bound, NAMES)
        _expect("late", added(shown, delta), fresh, where)
        seen.steps += 1
    db.close()


def _shared(random: Random, plan: Plan, tables: Tables) -> dict[str, Portion]:
    """Tables that contain auxiliary tables of a plan: with more columns, and with fewer conditions."""
    found = {}
    for name, portion in portions(plan).items():
        names = tuple(c for c, _ in tables.schemas[portion.table])
        texts = frozenset(text for text in portion.conditions if random.random() < 0.5)
        wide = portion.like(names, texts)
        found[name] = wide if random.random() < 0.7 and wide.contains(portion) else portion
    return found


def check_from_view(seed: int, seen: Seen) -> None:
    """A random join whose rows change, maintained from its own rows where they can tell.

    Rows of several tables are deleted and modified, or rows of one table inserted, too. Often a table has several rows
    of one key, the same or with other values, before the change or after it: that the key is none, a guard must find
    wherever it would make the view wrong.
    """
    random = Random(seed)
    tables = Tables.drawn(random)
    sql = next(text for text in iter(lambda: query(random, tables), None) if _is_a_join(text))
    db = Database(tables.schemas)
    state = tables.filled(random)
    bound = db.bind(sql)
    asked = Autonomous(bound.plan, dict.fromkeys(NAMES, ("id",)), bound.types)
    copied = random.choice((None, *NAMES, *asked.verifying))
    if copied is not None:
        state[copied] += tables.of_the_same_keys(random, copied, state)
    for name, rows in state.items():
        db.replace(name, Counter(rows))
    shown = db.query(sql)
    into = random.choice([None, *asked.insertable])
    new = tables.changed(random, state, inserted=(0,) if into is None else (1,))
    if copied is not None and random.random() < 0.3:
        new[copied] += tables.of_the_same_keys(random, copied, new)
    changed = [name for name in asked.verifying if Counter(new[name]) != Counter(state[name]) and into in (None, name)]
    program = asked.program(changed) if changed else None
    if program is None:
        db.close()
        return
    db.show(bound)
    new = {name: rows if name in changed else state[name] for name, rows in new.items()}
    for name in changed:
        net = Counter(new[name])
        net.subtract(Counter(state[name]))
        db.log(name, net)
        db.replace(name, Counter(new[name]))
    fresh = db.query(sql)
    with db.out_of_reach():
        found = db.run(program)
    kinds = {guard.kind for guard, _ in found.broken}
    seen.views += 1
    seen.kinds.update(kinds)
    if not kinds:
        seen.steps += 1
        seen.kinds["insertions"] += into is not None
        _expect("from view", added(shown, found.change), fresh, f"seed {seed}: {sql}\n{state} → {new}")
    elif DUPLICATE in kinds and copied is None and max(added(shown, fresh).values()) == 1:
        raise Failure("guard", f"seed {seed}: {sql}: {kinds}\n{state} → {new}")
    db.close()


def _is_a_join(sql: str) -> bool:
    words = ("DISTINCT", "GROUP BY", "LEFT", "SUM(", "COUNT(", "MIN(", "AVG(")
    return " JOIN " in sql and not any(word in sql for word in words)


def _judge(found: list[tuple[Guard, Counter[Row]]], seen: Seen, where: str) -> None:
    """Promises are kept here: a guard may find exposed updates, nothing else."""
    for guard, rows in found:
        if guard.kind != EXPOSED:
            raise Failure("guard", f"{guard.kind} of {guard.table}{guard.names}: {dict(rows)} in {where}")
    seen.exposed += bool(found)


def _expect(kind: str, got: Counter[Row], wanted: Counter[Row], where: str) -> None:
    if got != wanted:
        raise Failure(kind, f"too much {dict(got - wanted)}, missing {dict(wanted - got)}\n{where}")
