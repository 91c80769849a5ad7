#!/usr/bin/env bash
# Publish what a GPU has measured, in a clone without changes, and say what becomes of it:
#
#   .github/publish.sh MEASURED OUT
#
# MEASURED holds the run, new.json, and below docs/benchmarks the reports of the same job. OUT gets
# the change of the repository as proposal.patch, and what people have to write anew as body.md.
set -euo pipefail
measured=$1 out=$2
mkdir -p "$out"
if [ -d "$measured/docs/benchmarks" ]; then cp -R "$measured/docs/benchmarks/." docs/benchmarks/; fi
"${PYTHON:-.venv/bin/python}" -m softmax_site.publish "$measured/new.json" > "$out/body.md"
git add --all README.md docs src
git diff --cached --binary HEAD > "$out/proposal.patch"
