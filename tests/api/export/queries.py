"""Prints, as JSON, what the queries of a page find in the files of an export, by DuckDB and by Polars.

    queries.py PAGE     in the folder above `export`
"""
import datetime
import json
import re
import sys

import duckdb
import polars  # noqa: F401 - what the page imports is there

# Deterministic hours, whatever the machine's zone.
duckdb.sql("set timezone = 'UTC'")


def plain(value):
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


def rows(found):
    return [[plain(value) for value in row] for row in found]


page = open(sys.argv[1]).read()
by_duckdb, by_polars, scope = [], [], {}
for language, text in re.findall(r"```(sql|python)\n(.*?)```", page, re.S):
    if language == "sql":
        found = rows(duckdb.execute(text).fetchall())
        if not text.startswith("create"):
            by_duckdb.append(found)
    else:
        scope["print"] = lambda found: by_polars.append(rows(found.rows()))
        exec(text, scope)
counts = {
    table: duckdb.sql(f"select run_id, count(*) from {table} group by all order by all").fetchall()
    for table in ("events", "markers", "frames")
}
whole = duckdb.sql(
    "select node, count(*), count(distinct seq), min(seq), max(seq) from events group by all order by all"
).fetchall()
about = duckdb.sql(
    "select distinct decode(key), decode(value) from parquet_kv_metadata('export/*/*/*/*.parquet') "
    "where decode(key) like 'sightline%' order by all"
).fetchall()
print(json.dumps({"duckdb": by_duckdb, "polars": by_polars, "counts": counts, "whole": whole, "about": about}))
