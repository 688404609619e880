#!/usr/bin/env bash
# One resource made slow on purpose, and named: a disk, a link, the way, a server's processor, the client's. Five of the
# fifty cases of `vazao lab verdicts`, those that are true on a busy machine, too.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "verdicts must be tested as root: only root makes hosts, links and slow disks" >&2
    exit 1
fi
product_build vazao-app
vazao="$programs/vazao"

passed=0
failed=0
for case in 1-library-read4-{disk,link-data1,cpu-data1,cpu-client} 1-library-read1-delay; do
    # Retry once: the machine may have had no time to be as slow as the case demands.
    if "$vazao" lab verdicts --strict --work "$TMPDIR" --only "$case" ||
        "$vazao" lab verdicts --strict --work "$TMPDIR" --only "$case"; then
        passed=$((passed + 1))
    else
        echo "failed: $case"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
