# Sourced by the studies: what HABITUS is, how mixes are cut, and jobs, JOBS at a time, in turns on
# GPUS graphics cards.
#
#   queue JOB COMMAND...            add a command to a job; its output goes to $OUT/log/JOB
#   wait_for JOB OTHER FILE TEXT    let a job go on once FILE has TEXT, which comes of OTHER, queued
#                                   before; it fails when OTHER has ended without, or is not there
#   work                            run what is queued; fails when something failed
#
# Commands of one job run one after the other, and the rest of it is left out when one fails. With
# JOBS of 2 or more, what failed goes on once more at the end, one job at a time on however many
# cards: on a shared one it is most often memory that ran out. Folders without spaces, please: what
# is queued is read by a shell again.
HABITUS=${HABITUS:-habitus}
CUT= # of mixes: long pairs make all of a batch long
[ ! -d "$MODEL" ] || CUT="--max-tokens 350 --tokenizer $MODEL"
GPUS=${GPUS:-1}
JOBS=${JOBS:-1}
queued=0
line=0
mkdir -p "$OUT/queue" "$OUT/log"
rm -f "$OUT"/queue/*

queue() {
    job=$1; shift
    file=$(find "$OUT/queue" -name "*-of-$job")
    if [ -z "$file" ]; then
        file=$OUT/queue/$(printf %03d "$queued")-of-$job
        echo "trap 'touch $OUT/queue/$job.over' EXIT" > "$file"
        [ "$GPUS" = 1 ] || echo "export CUDA_VISIBLE_DEVICES=$(( queued % GPUS ))" >> "$file"
        queued=$(( queued + 1 ))
    fi
    line=$(( line + 1 ))
    echo "[ -e $OUT/queue/$line.done ] ||" \
        "{ $* >> $OUT/log/$job 2>&1 < /dev/null && touch $OUT/queue/$line.done; } ||" \
        "{ echo \"$job failed: see $OUT/log/$job\" >&2; exit 1; }" >> "$file"
}

wait_for() {
    [ -n "$(find "$OUT/queue" -name "*-of-$2")" ] || touch "$OUT/queue/$2.over"
    found="grep -qs '$4' $3"
    # a job's parent runs them all: when that is over, nobody makes the file any more
    queue "$1" "until $found || [ -e $OUT/queue/$2.over ] || ! kill -0 \$PPID 2> /dev/null; do" \
        "sleep 1; done; { $found || { echo '$1 needs $2, which is over or was not asked for'; false; }; }"
}

work() {
    status=0
    jobs=$(find "$OUT/queue" -name '*-of-*' | sort)
    echo "$jobs" | xargs -r -P "$JOBS" -n 1 sh || status=1
    if [ $status = 1 ] && [ "$JOBS" != 1 ]; then
        echo "what failed goes on, one job at a time" >&2
        status=0
        echo "$jobs" | xargs -r -n 1 sh || status=1
    fi
    rm -f "$OUT"/queue/*
    return $status
}
