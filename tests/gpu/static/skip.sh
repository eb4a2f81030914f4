#!/usr/bin/env bash
echo "skipped: the CUDA backend is not in this build (-DTLM_CUDA)"
exit 77
