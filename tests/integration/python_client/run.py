"""Runs one test module in an environment: python3 run.py FOLDER test_calls. Exits with 77 where
environment.py could not make one."""

import json
import os
import pathlib
import sys

folder, module = pathlib.Path(sys.argv[1]), sys.argv[2]
description = folder / "environment.json"
if not description.exists():
    print(f"skipped: there is no environment in {folder.name}")
    sys.exit(77)
environment = json.loads(description.read_text(encoding="utf-8"))
here = str(pathlib.Path(__file__).parent)
support = os.path.join(os.environ["TLM_SOURCE_DIR"], "tests", "support")
path = [here, support] + ([environment["path"]] if environment["path"] else [])
os.environ.update(PYTHONPATH=os.pathsep.join(path), TLM_CLIENT_BIN=environment["bin"],
                  TLM_CLIENT_ENVIRONMENT=str(folder))
os.execv(environment["python"], [environment["python"], "-B", "-W", "error",
                                 "-m", "unittest", "-v", module])
