"""Arguments and loop of the checks: `CHECK.py URL KEY MODEL` runs every function of the file whose name begins with
`check_`, and ends with a line of how many held."""

import sys

URL, KEY, MODEL = sys.argv[1:4]

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def fails(kind, word, call):
    try:
        call()
    except kind as error:
        assert word in str(error), error
        return error
    raise AssertionError(f"no {kind.__name__}")


def run(names):
    checks = [check for name, check in names.items() if name.startswith("check_")]
    for check in checks:
        check()
        print("held:", check.__name__, flush=True)
    print(f"{len(checks)} held")
