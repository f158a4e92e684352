#!/bin/sh
# A Covey worker in plain shell: curl asks, jq reads. It takes one command at a time until it is stopped.
#
#   COVEY_URL=http://127.0.0.1:8765 COVEY_TOKEN_FILE=token ./worker.sh [QUEUE]
#
# TERM or INT ends it at once: what it runs is stopped and handed back, at no cost to the job. If it is killed, its keeper
# does the same within seconds; if that is killed too, the command runs on, and the job elsewhere once its lease is over.
# The token is read from a file and handed to curl on its standard input, so it never shows up in `ps`.
set -eu

url=${COVEY_URL:-http://127.0.0.1:8765} token_file=${COVEY_TOKEN_FILE:-} lease=${COVEY_LEASE:-30}
case $0 in /*) self=$0 ;; *) self=$PWD/$0 ;; esac

ask() { # ask PATH BODY [OPTION …]: curl's own process, so that whoever kills it leaves nothing
    path=$1 body=$2 header=''
    shift 2
    [ -z "$token_file" ] || header="header = \"authorization: Bearer $(cat "$token_file")\""
    exec curl --silent --show-error --config - --header 'content-type: application/json' --data-binary "$body" \
        "$@" "$url$path" <<END
$header
END
}

end() { # end PID: it and its whole session are gone, at whichever point it was
    # No -- before a group: of dash and busybox each takes another form of it. KILL, and first to the process itself: a shell that was just forked may lose a TERM together with the trap that it
    # inherited, and until it has a session of its own there is no group to be hit.
    kill -KILL "$1" 2>/dev/null || :
    kill -KILL "-$1" 2>/dev/null || :
}

lives() { # lives PID: it has not ended; a zombie has
    kill -0 "$1" 2>/dev/null && ! grep -qs '^State:.Z' "/proc/$1/status"
}

keep() { # keep WORKER WORK RUNNING ID HOLD SECONDS: the lease is renewed, the command is stopped when it must be
    trap '' INT TERM HUP # whoever tells everybody to stop tells the worker too
    worker=$1 work=$2 running=$3 id=$4 hold=$5 timeout=$6
    now=$(date +%s)
    over=$((now + timeout)) beat=$((now + lease / 3)) heard=$now told=''
    stop() { # TERM first, KILL two seconds later; the worker is told why
        [ -n "$told" ] && return
        printf %s "$1" >"$work/why"
        kill -TERM "-$running" 2>/dev/null || :
        told=$now
    }
    while sleep 1; do
        now=$(date +%s)
        if ! lives "$worker"; then # killed: nobody else is left to do it
            end "$running"
            (ask "/v1/jobs/$id/release" "$hold" --max-time 5) >/dev/null 2>&1 || :
            rm -rf "$work"
            exit
        fi
        [ "$timeout" -eq 0 ] || [ "$now" -le "$over" ] || stop timeout
        if [ "$now" -ge "$beat" ]; then
            beat=$((now + lease / 3))
            status=$(ask "/v1/jobs/$id/heartbeat" "$hold" --max-time 5 --output "$work/still" \
                --write-out '%{http_code}' 2>/dev/null) || status=000
            case $status in
            200)
                heard=$now
                case $(jq -r '.reason // empty' "$work/still") in
                '') ;;
                cancelled) stop cancelled ;;
                *) stop timeout ;;
                esac
                ;;
            404 | 409) stop lost ;; # somebody else's by now
            *) [ $((now - heard)) -lt "$lease" ] || stop lost ;; # a server may be away for a while, but not for a lease
            esac
        fi
        [ -z "$told" ] || [ $((now - told)) -lt 2 ] || end "$running"
    done
}

if [ "${1:-}" = --keep ]; then
    shift
    keep "$@"
    exit
fi

queue=${1:-default}
unset COVEY_TOKEN_FILE # no business of the commands
work=$(mktemp -d)
stopping='' asking='' running='' keeping=''
clean() { # nothing is left behind, whichever way we leave
    for each in $keeping $running $asking; do end "$each"; done
    rm -rf "$work"
}
told() { # what we wait for ends now, so that a wait that has not begun does not last either
    stopping=yes
    [ -z "$asking" ] || end "$asking"
    [ -z "$running" ] || kill -TERM "-$running" 2>/dev/null || :
}
trap clean EXIT
trap told INT TERM HUP

claim() { # claim WAIT: the answer is in $work/claim. Under the same name it may be asked again: what was lent stays lent
    rm -f "$work/claim"
    (ask "/v1/jobs/claim?wait=$1" "$(jq -nc --arg q "$queue" --argjson s "$lease" --arg r "$name" \
        '{queues: [$q], kinds: ["command"], lease_s: $s, name: "shell", request: $r}')" \
        --fail-with-body --max-time $(($1 + 5)) >"$work/claim") &
    asking=$!
    [ -z "$stopping" ] || [ "$1" = 0 ] || end "$asking"
    wait "$asking" 2>/dev/null && code=0 || code=$?
    [ -z "$stopping" ] || wait "$asking" 2>/dev/null || : # it was perhaps a signal to us that ended the wait
    asking=''
    return "$code"
}

report() { # report VERB BODY: tried again for half a minute, unless somebody wants us gone
    patience='--retry 5 --retry-connrefused --retry-max-time 30 --max-time 60'
    [ -z "$stopping" ] || patience='--max-time 5'
    # shellcheck disable=SC2086 # several words
    (ask "/v1/jobs/$id/$1" "$2" --fail-with-body $patience >"$work/answer") || echo "job $id: $1 was refused: $(cat "$work/answer")" >&2
}

while [ -z "$stopping" ]; do
    name=$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')
    until claim 30; do
        [ -z "$stopping" ] || break
        sleep 1
    done
    # Told to stop while it asked: what it may have been given in that moment is given back.
    [ -z "$stopping" ] || claim 0 || :
    id=$(jq -r '.lent.job.id // empty' "$work/claim" 2>/dev/null) || id=''
    [ -n "$id" ] || continue
    hold=$(jq -c '{pool: .lent.pool, fence: .lent.fence}' "$work/claim")
    if [ -n "$stopping" ]; then
        report release "$hold"
        break
    fi
    jq -r '.lent.job.args | if .argv then (.argv | map(@sh) | join(" ")) else .command end' "$work/claim" >"$work/script"
    place=$(jq -r '.lent.job.cwd // "/"' "$work/claim")
    timeout=$(jq -r '.lent.timeout_s // 0 | ceil' "$work/claim")
    rm -f "$work/why"

    # The command runs in a session of its own, so that all of it can be stopped.
    (cd "$place" && exec setsid sh "$work/script") >"$work/out" 2>"$work/err" </dev/null &
    running=$!
    COVEY_TOKEN_FILE=$token_file setsid sh "$self" --keep $$ "$work" "$running" "$id" "$hold" "$timeout" </dev/null &
    keeping=$!
    [ -z "$stopping" ] || told
    wait "$running" 2>/dev/null && code=0 || code=$?
    for _ in 1 2; do # likewise
        [ -n "$stopping" ] && lives "$running" && sleep 1 || break
    done
    end "$keeping"
    wait "$keeping" 2>/dev/null || :
    keeping=''
    end "$running" # or what it has left in the background
    wait "$running" 2>/dev/null || :
    running=''

    why=$(cat "$work/why" 2>/dev/null) || why=''
    [ -z "$stopping" ] || why=stop
    case $why in
    lost) continue ;; # it runs elsewhere: nothing of it counts
    stop)
        report release "$hold"
        continue
        ;;
    timeout) error="timed out after $timeout s" ;;
    *) error="exit code $code" ;;
    esac
    if [ "$code" -eq 0 ] && [ -z "$why" ]; then verb=complete; else verb=fail; fi
    for each in out err; do tail -c 1048576 "$work/$each" >"$work/$each.tail"; done
    jq -nc --argjson hold "$hold" --argjson code "$code" --arg error "$error" --arg verb "$verb" \
        --rawfile out "$work/out.tail" --rawfile err "$work/err.tail" \
        '$hold + {exit_code: $code, stdout: $out, stderr: $err} + if $verb == "fail" then {error: $error} else {} end' \
        >"$work/report"
    report "$verb" "@$work/report"
done
