#!/usr/bin/env python3
"""Checks that the tests of an earlier state have all run, under the names that they have today.

    ./test --long 2>&1 | tee output; tests/renames/check.py output

`renames.tsv` has a line for each test before the engine was divided into parts and its language made
plain: the old name, today's, and a reason where they are no longer one to one (`-`: there is no successor).
"""
import pathlib
import re
import sys

RENAMES = pathlib.Path(__file__).with_name("renames.tsv")
RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (\w+)")


def passed_tests(files):
    """The tests that passed, by their last names: the paths under which they did."""
    passed = {}
    for file in files:
        for line in pathlib.Path(file).read_text(errors="replace").splitlines():
            found = RESULT.match(line)
            path = found[1].split("::") if found else [""]
            # Another test runs it, in a process of its own.
            is_run_elsewhere = "of its own" in line or "of their own" in line or path[-1].endswith("_process_entry")
            if found and (found[2] == "ok" or is_run_elsewhere):
                passed.setdefault(path[-1], []).append(path)
    return passed


def has_run(name, passed):
    file, *path = name.split("::")
    runs = passed.get(path[-1], [])
    # The lists of semantic tests have a module for each file.
    if file.startswith("tests/semantics/"):
        return any(pathlib.Path(file).stem in run for run in runs)
    return bool(runs)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    passed = passed_tests(sys.argv[1:])
    lines = [line.split("\t") for line in RENAMES.read_text().splitlines()]
    successors = [line[1] for line in lines if line[1] != "-"]
    missing = [name for name in successors if not has_run(name, passed)]
    for name in missing:
        print(f"did not run: {name}")
    print(f"{len(lines)} earlier tests, {len(successors) - len(missing)} of {len(successors)} successors have run")
    sys.exit(1 if missing else 0)


main()
