#!/usr/bin/env bash
# Propose a patch as a pull request, and start its checks:
#
#   .github/propose.sh PATCH BODY TITLE
#
# Code that was measured has made the patch, so nothing is taken from it but what publishing changes.
# GITHUB_TOKEN starts no workflow by a push or a pull request, but it may start one by name: hence
# the last line. GH takes the place of gh where this is tried.
set -euo pipefail
patch=$1 body=$2 title=$3 gh=${GH:-gh}
branch="benchmark-$(date -u +%Y%m%d-%H%M%S)"

git config user.name "benchmark runner"
git config user.email "benchmark-runner@users.noreply.github.com"
git switch --quiet --create "$branch"
git apply --index --include="README.md" --include="docs/benchmarks/*" --include="docs/assets/*" \
    --include="src/softmax_site/figures/frames/*" "$patch"
git commit --quiet --message "$title"
git push --quiet origin "$branch"
$gh pr create --title "$title" --body-file "$body" --head "$branch"
$gh workflow run test.yml --ref "$branch"
