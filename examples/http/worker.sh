#!/bin/sh
# A Covey worker in plain shell: curl asks, jq reads. It takes one command at a time until it is stopped.
#
#   COVEY_URL=http://127.0.0.1:8765 COVEY_TOKEN_FILE=token ./worker.sh [QUEUE]
#
# The token is read from a file and handed to curl on its standard input, so it never shows up in `ps`.
set -eu

url=${COVEY_URL:-http://127.0.0.1:8765}
queue=${1:-default}
lease=${COVEY_LEASE:-30}

ask() { # ask PATH BODY: the answer on stdout; fails if the server says no
    {
        if [ -n "${COVEY_TOKEN_FILE:-}" ]; then
            printf 'header = "authorization: Bearer %s"\n' "$(cat "$COVEY_TOKEN_FILE")"
        fi
    } | curl --silent --show-error --fail-with-body --config - --retry 5 --retry-connrefused --max-time 90 \
        --header 'content-type: application/json' --data-binary "$2" "$url$1"
}

work=$(mktemp -d)
beating='' running=''
clean() { # nothing is left behind, whichever way we leave
    [ -z "$beating" ] || kill "$beating" 2>/dev/null || true
    [ -z "$running" ] || kill -- "-$running" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 0' INT TERM

while :; do
    ask "/v1/jobs/claim?wait=30" "$(jq -nc --arg q "$queue" --argjson s "$lease" \
        '{queues: [$q], kinds: ["command"], lease_s: $s, name: "shell"}')" >"$work/claim" || { sleep 1; continue; }
    id=$(jq -r '.lent.job.id // empty' "$work/claim")
    [ -n "$id" ] || continue
    hold=$(jq -c '{pool: .lent.pool, fence: .lent.fence}' "$work/claim")
    jq -r '.lent.job.args | if .argv then (.argv | map(@sh) | join(" ")) else .command end' "$work/claim" >"$work/script"
    cd "$(jq -r '.lent.job.cwd // "/"' "$work/claim")" 2>/dev/null || cd /

    # The command runs in a session of its own, so that all of it can be stopped.
    setsid sh "$work/script" >"$work/out" 2>"$work/err" </dev/null &
    running=$!
    # While it runs the lease is renewed; a job that was cancelled, or is somebody else's by now, is stopped.
    (
        while sleep $((lease / 3)); do
            still=$(ask "/v1/jobs/$id/heartbeat" "$hold") || still='{"cancelled": true}'
            [ "$(printf %s "$still" | jq -r .cancelled)" = false ] || kill -- "-$running" 2>/dev/null || true
        done
    ) &
    beating=$!
    code=0
    wait "$running" || code=$?
    running=''
    kill "$beating" 2>/dev/null || true
    wait "$beating" 2>/dev/null || true
    beating=''

    if [ "$code" -eq 0 ]; then verb=complete; else verb=fail; fi
    jq -nc --argjson hold "$hold" --argjson code "$code" --rawfile out "$work/out" --rawfile err "$work/err" \
        '$hold + {exit_code: $code, stdout: $out, stderr: $err}
         + if $code == 0 then {} else {error: "exit code \($code)"} end' >"$work/report"
    ask "/v1/jobs/$id/$verb" "@$work/report" >/dev/null || echo "job $id: the report was refused" >&2
done
