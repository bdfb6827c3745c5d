"""Hostile SQL: whatever way it is written, it reaches neither code nor anything but tracked tables."""

from __future__ import annotations

import re

import pytest

from deferred.errors import DeferredError, InvalidSQLError, NondeterministicSQLError, UnsafeSQLError
from deferred.sql.bind import bind
from deferred.sql.builtins import BUILT_IN
from deferred.sql.dialect import own_scalar, parse_query, without_comments
from deferred.sql.pin import pinned
from deferred.sql.refusing import refuse_words_that_vary
from deferred.sql.types import Types
from deferred.sql.unsafe import FORMATS, OPTIONS
from tests.sql.test_families import LINES

FUNCTIONS = (
    # of Spark: each runs code by its name, or takes the name of something outside in an argument
    *("reflect", "java_method", "try_reflect", "identifier", "from_protobuf", "to_protobuf"),
    # of its commercial relatives
    *("read_files", "list_files", "cloud_files_state", "secret", "try_secret", "list_secrets", "http_request"),
    *("remote_query", "ai_query", "ai_gen", "vector_search", "read_kafka", "read_kinesis", "read_pubsub"),
)
"""Written out here, and not taken from the code that refuses them."""
CALLS = [
    "{f}('x')",
    "{F}('x')",
    "`{f}`('x')",
    "`{F}` ('x')",
    "builtin.{f}('x')",
    "system.builtin.`{f}`('x')",
    "{f}/* */('x')",
    "{f} -- comment\n('x')",
    "UPPER({f}('x'))",
    "CASE WHEN a = 1 THEN {f}('x') END",
    "(SELECT MAX({f}('x')) FROM r)",
    "{f}('x').field",
    "{f}('x')[0]",
    "TRANSFORM(ARRAY(1), y -> {f}('x'))",
    "SUM(LENGTH({f}('x'))) OVER (PARTITION BY a)",
    "SUM(a) FILTER (WHERE {f}('x') = '')",
]
QUERIES = [
    "SELECT {e} AS e FROM r",
    "SELECT a FROM r WHERE {e} IS NULL",
    "SELECT a FROM r JOIN t ON {e} = t.s",
    "SELECT a FROM r ORDER BY {e} LIMIT 1",
    "SELECT COUNT(*) AS n FROM r GROUP BY a HAVING {e} IS NULL",
    "SELECT x FROM r LATERAL VIEW EXPLODE(ARRAY({e})) y AS x",
    "WITH RECURSIVE c AS (SELECT 1 AS a UNION ALL SELECT a FROM c WHERE {e} IS NULL) SELECT a FROM c",
    "WITH never AS (SELECT {e} AS e) SELECT a FROM r",
    "SELECT a FROM r UNION ALL SELECT {e} FROM r",
    "SELECT a FROM r PIVOT (MAX({e}) FOR a IN (1, 2))",
    "SELECT * FROM VALUES ({e}) AS v(a)",
    "FROM r |> WHERE {e} IS NULL |> SELECT a",
]


def bound(sql: str) -> None:
    schema = [("a", "int"), ("s", "string")]
    bind(sql, lambda path: (path[-1], schema), Types(lambda _: [("t0", "string")] * 9))


@pytest.mark.parametrize("query", QUERIES)
def test_functions_in_every_disguise(query: str) -> None:
    """In a view's text, also where the view would be recomputed as a whole, and in statements that Spark runs."""
    for number, call in enumerate(CALLS):
        function = FUNCTIONS[(number * len(QUERIES) + QUERIES.index(query)) % len(FUNCTIONS)]
        for name in {"reflect", function}:
            sql = query.format(e=call.format(f=name, F=name.upper()))
            for use in (bound, lambda text: pinned(text, lambda path: path[0])):
                with pytest.raises((UnsafeSQLError, InvalidSQLError)) as refused:
                    use(sql)
                assert isinstance(refused.value, UnsafeSQLError) or "does not parse" in str(refused.value), sql


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_in_conditions_of_transactions(function: str) -> None:
    with pytest.raises(UnsafeSQLError):
        own_scalar(f"a = 1 OR `{function}`('x') = ''")


FILE, ADDRESS = "'file:///etc/passwd'", "'http://example.org'"


@pytest.mark.parametrize(
    "call",
    [
        f"from_xml(s, 'a INT', map('rowValidationXSDPath', {FILE}))",
        f"from_xml(s, 'a INT', map('mode', 'FAILFAST', 'ROWVALIDATIONXSDPATH', {FILE}))",
        f"from_xml(s, schema_of_xml('<a/>', map('rowValidationXSDPath', {FILE})))",
        f"from_avro(s, '{{}}', map('avroSchemaUrl', {ADDRESS}))",
        f"to_json(a, map('nobodyKnowsIt', {ADDRESS}))",
        "from_json(s, 'a INT', map_from_arrays(array('mode'), array('FAILFAST')))",
        "from_csv(s, 'a INT', map(s, s))",
        "from_csv(s, 'a INT', map(CONCAT('avro', 'SchemaUrl'), 'x'))",
        "from_json(s, 'a INT', options => map('avroSchemaUrl', 'x'))",
    ],
)
def test_options_that_may_name_a_file_or_an_address(call: str) -> None:
    for sql in (f"SELECT {call} AS x FROM r", f"WITH never AS (SELECT {call} AS x FROM r) SELECT a FROM r"):
        with pytest.raises(UnsafeSQLError, match="option"):
            bound(sql)
        with pytest.raises(UnsafeSQLError, match="option"):
            pinned(sql, lambda path: path[0])
    with pytest.raises(UnsafeSQLError, match="option"):
        own_scalar(f"{call} IS NULL")


def test_options_that_say_how_to_read_are_allowed() -> None:
    for call in (
        "from_json(s, 'a INT')",
        "from_json(s, 'a INT', map('mode', 'FAILFAST', 'timestampFormat', 'yyyy'))",
        "to_csv(named_struct('a', a), map('SEP', ';'))",
        "from_xml(s, schema_of_xml('<p><a>1</a></p>', map('rowTag', 'p')))",
    ):
        own_scalar(f"{call} IS NULL")


def test_every_function_of_spark_has_been_looked_at() -> None:
    """Functions that take an options map, a file or a class's name are known as such, whatever they are called."""
    looking = {name for name in BUILT_IN if re.match(r"(from|to|schema_of)_(json|csv|xml|avro|protobuf)$", name)}
    assert looking == OPTIONS.keys() | {"from_protobuf", "to_protobuf", "to_avro"}
    assert {"reflect", "java_method", "try_reflect"} == {n for n in BUILT_IN if "reflect" in n or "java" in n}


@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_paths(format_: str) -> None:
    for name in (f"{format_}.`/etc/passwd`", f"`{format_.upper()}` . `relative`", f"c.{format_}.`s3a://b/x`"):
        for sql in (
            f"SELECT * FROM {name}",
            f"SELECT a FROM r WHERE a IN (SELECT a FROM {name})",
            f"SELECT a FROM r WHERE a = (SELECT MAX(a) FROM {name} AS x)",
            f"WITH c AS (SELECT * FROM {name}) SELECT a FROM r",
            f"SELECT r.a FROM r, LATERAL (SELECT * FROM {name}) AS x",
        ):
            with pytest.raises(UnsafeSQLError, match="path"):
                bound(sql)
        with pytest.raises(UnsafeSQLError, match="path"):
            own_scalar(f"a IN (SELECT a FROM {name})")
        for statement in (f"INSERT INTO r SELECT * FROM {name}", f"DELETE FROM {name}", f"UPDATE {name} SET a = 1"):
            with pytest.raises(UnsafeSQLError, match="path"):
                pinned(statement, lambda path: path[0])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM table_changes_by_path('/secret', 0)",
        "SELECT * FROM table_changes('r', 0)",
        "SELECT * FROM TABLE(my_function(1))",
        "SELECT * FROM my_function(TABLE(r))",
        "SELECT r.a FROM r, LATERAL my_function(a) AS x",
        "SELECT r.a FROM r JOIN LATERAL my_function(a) AS x",
        "SELECT a FROM r LATERAL VIEW my_function(a) x AS y",
        "SELECT * FROM IDENTIFIER('parquet.`/secret`')",
        "SELECT TRANSFORM(a) USING 'cat' AS (b) FROM r",
        "WITH RECURSIVE c AS (SELECT 1 AS a) SELECT TRANSFORM(a) USING 'cat' AS (b) FROM c",
        "SELECT python_worker_logs.a FROM python_worker_logs()",
    ],
)
def test_table_functions_and_scripts(sql: str) -> None:
    with pytest.raises(UnsafeSQLError):
        bound(sql)
    with pytest.raises(UnsafeSQLError):
        pinned(sql, lambda path: path[0])


@pytest.mark.parametrize(
    "sql",
    [
        "EXECUTE IMMEDIATE 'DROP TABLE r'",
        "BEGIN SELECT 1; DROP TABLE r; END",
        "SET x = 1",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "CALL system.anything()",
        "ADD JAR '/tmp/x.jar'",
        "SELECT 1; SELECT 2",
        "CACHE TABLE r",
        "EXPLAIN SELECT 1",
        "INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT 1",
        "FROM r INSERT INTO t SELECT a",
    ],
)
def test_only_a_query_defines_a_view(sql: str) -> None:
    with pytest.raises(DeferredError):
        bound(sql)


@pytest.mark.parametrize("call", ["rand()", "`rand`()", "builtin.rand()", "`UUID`()", "`now`()", "current_user"])
def test_what_varies_is_seen_in_every_disguise(call: str) -> None:
    with pytest.raises(NondeterministicSQLError):
        bound(f"SELECT a, {call} AS x FROM r")


def test_bare_words_of_a_view_that_is_recomputed() -> None:
    query = parse_query("SELECT user, localtimestamp AS x FROM r")
    with pytest.raises(NondeterministicSQLError, match="localtimestamp"):
        refuse_words_that_vary(query, {"user"})
    refuse_words_that_vary(query, {"user", "localtimestamp"})


HIDDEN = [
    "SELECT a FROM r -- \\\nUNION ALL SELECT 1",
    "SELECT a FROM r --\rUNION ALL SELECT 1",
    "SELECT a /* /* */ UNION ALL SELECT 1 */ FROM r",
    "SELECT a FROM r /* \\*/ UNION ALL SELECT 1 -- */",
    "SELECT a\u00a0FROM\u2003r",
    "SELECT /*+ BROADCAST(r) */ a FROM r",
    "SELECT '-- no comment', '/* none */', `--`, \"/*\" FROM r -- one",
    "SELECT r'\\' AS a, 'it''s' AS b, 'it\\'s' AS c FROM r",
]


@pytest.mark.parametrize("sql", [*HIDDEN, *(line.example for line in LINES)], ids=lambda sql: sql[:40])
def test_spark_sees_what_the_parser_sees(sql: str) -> None:
    """Nothing but tokens is left, and they are the same ones, at the same places."""
    from deferred.sql.dialect import ViewSQL

    text = without_comments(sql)
    assert len(text) == len(sql)
    before, after = ([(t.token_type, t.text, t.start) for t in ViewSQL().tokenize(s)] for s in (sql, text))
    assert before == after
    assert re.sub(r"(?s)'(?:[^'\\]|\\.)*'|`[^`]*`|\"[^\"]*\"|/\*\+.*?\*/", "", text).find("--") == -1
