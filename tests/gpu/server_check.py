"""A server on the GPU that nvidia-smi names: by UUID, by a UUID's beginning, not by another one;
what it tells of the GPU at /metrics; and that a cache without room is refused with figures.

  server_check.py
"""

import re
import subprocess
import sys
import urllib.request

import served

DEMO = served.HERE.parents[1] / "model" / "demo"
# At /metrics, and the least value.
METRICS = {"tlm_gpu_up": 1, "tlm_gpu_memory_used_bytes": 1e6, "tlm_gpu_memory_total_bytes": 1e9,
           "tlm_gpu_sm_clock_hertz": 1e6}


def samples(server):
    """Those at the server's /metrics, by name and labels."""
    url = f"http://{server.target_of('metrics')}/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in
            (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def starts(device, uuid):
    """What is wrong with a server on this device, or None."""
    with served.Server(f"--model={DEMO}", f"--gpu_device={device}", ports=("metrics",)) as server:
        found = samples(server)
    for name, least in METRICS.items():
        print(f"  {name} {found.get(name)}")
        if not found.get(name, -1) >= least:
            return f"{name} is {found.get(name)}, not {least:g} or more"
    if not any(name.startswith("tlm_gpu_info") and uuid in name for name in found):
        return f"tlm_gpu_info does not name {uuid}"
    return None


def refused(flag, text):
    """What is wrong with how a server refuses this flag, or None."""
    try:
        with served.Server(f"--model={DEMO}", flag):
            return "it starts"
    except RuntimeError as error:
        print(str(error))
        return None if re.search(text, str(error)) else f"it does not say '{text}'"


def main():
    listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, check=False,
                            timeout=15).stdout
    match = re.search(r"GPU-[0-9a-f-]{36}", listed)
    if match is None:
        print(f"skipped: nvidia-smi names no UUID: {listed}")
        return 77
    uuid = match[0]
    other = "GPU-00000000-0000-0000-0000-000000000000"
    wrong = []
    for what, check in (
            ("by its UUID", lambda: starts(uuid, uuid)),
            ("by its UUID's beginning", lambda: starts(uuid[:12], uuid)),
            ("by another UUID", lambda: refused(f"--gpu_device={other}", "asked for, visible are")),
            ("with a cache of 1 TiB", lambda: refused("--kv_cache_bytes=1TiB",
                                                      "bytes of the GPU's memory"))):
        print(f"{what}:")
        try:
            bad = check()
        except (RuntimeError, OSError) as error:
            bad = str(error)
        print(f"{what}: {'as it should be' if bad is None else 'WRONG: ' + bad}", flush=True)
        wrong += [] if bad is None else [what]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
