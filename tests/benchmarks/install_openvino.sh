#!/usr/bin/env bash
# Installs OpenVINO GenAI, and what exports models for it, into a virtual environment of its own, for
# compare.py --peer=openvino --openvino=DIR. Downloads about 3 GB; DIR takes about 6 GB, and every
# exported model 1 to 2.5 GB more.
#   tests/benchmarks/install_openvino.sh DIR
set -euo pipefail
if [ $# -ne 1 ]; then
  echo "usage: $0 DIR" >&2
  exit 2
fi
python3 -m venv "$1"
"$1/bin/python" -m pip install --quiet openvino-genai==2026.4.1.0 optimum-intel==2.2.0 nncf==3.4.0 \
  transformers==5.5.4 torch==2.15.0
"$1/bin/python" -c 'import openvino_genai; print("OpenVINO GenAI", openvino_genai.__version__)'
